"""Two streams (paper 4)."""
