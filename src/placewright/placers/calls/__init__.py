"""Latency under ``calls``: search, relaxations and proofs."""
