"""What ops and copies cost: models and presets."""
