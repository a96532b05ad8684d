"""Model file to graph or problem, and back."""
