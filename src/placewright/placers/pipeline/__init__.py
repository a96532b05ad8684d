"""Pipelined throughput on plain arrays: units, stage loads, and the searches over them. The placers are thin users."""
