"""Placements made visible."""
