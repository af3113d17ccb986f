"""What `.ci/run` does: stages in their order, and what becomes of a failure. The plugin alone needs pytest."""
