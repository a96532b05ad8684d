"""Placers that learn: shared parts (features, parsing, networks, rewards, training, policy files) and one file each."""
