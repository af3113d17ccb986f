"""Logs, metrics, and words for events and lengths of time. A leaf: it imports no part of the system."""
