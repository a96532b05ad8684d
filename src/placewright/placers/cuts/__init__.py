"""Placements as labellings: minimum cuts, moves that are minimum cuts, and bounds below them."""
