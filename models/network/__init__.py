"""The global quantile network, and how it is trained."""
