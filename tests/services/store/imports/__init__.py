"""Imports on their way into the history."""
