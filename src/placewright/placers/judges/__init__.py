"""Judges as numba kernels, for searches that are kernels themselves; others ask ``placewright.evaluate``."""
