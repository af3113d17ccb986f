"""Alerts of the running system: the rules that people write, and how people are told."""
