"""Placers that prove their answers."""
