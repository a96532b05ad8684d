"""Pipelines without contiguity: any class of ops on any device. Searches, bounds, exact programmes."""
