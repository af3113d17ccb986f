"""Figures and health, for people and for Prometheus. A leaf: it imports no part of the system."""
