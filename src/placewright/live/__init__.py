"""Live PyTorch models: traced, measured, placed, dispatched. The public names are in :mod:`placewright.torch`."""
