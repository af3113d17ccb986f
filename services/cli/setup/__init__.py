"""Commands around an installation: is this machine ready, what is set, and where to begin."""
