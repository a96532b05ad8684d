"""Live PyTorch models: traced, measured, placed, dispatched. The public names are in :mod:`placewright.torch`."""

METADATA = "live"  # the key of a graph's metadata under which its live model stands; known without torch
