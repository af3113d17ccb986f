"""Prequential replay of recordings: what the live forecaster would have said, and how good that was."""
