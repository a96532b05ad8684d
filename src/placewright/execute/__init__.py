"""Placements run for real: pipelines of workers, honest measurements."""
