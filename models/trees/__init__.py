"""Gradient-boosted trees, as plain arrays."""
