"""Throughput of a pipeline: units, stage loads, searches over chains of ideals; not contiguous in a room of its own."""
