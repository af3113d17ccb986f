"""What the figures in docs/performance.md are made with; each is run with ``python -m benchmarks.NAME``."""
