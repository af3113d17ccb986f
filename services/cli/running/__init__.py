"""Commands that ask a running system, by HTTP."""
