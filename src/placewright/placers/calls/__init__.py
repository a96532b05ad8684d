"""Latency under the execution model ``calls``: search, relaxations and proofs."""
