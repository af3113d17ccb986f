"""How good alerts were: along a recording, and those of a running system."""
