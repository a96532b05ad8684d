"""Latency under ``sequential``: placements as labellings, minimum cuts, moves that are minimum cuts, and proofs."""
