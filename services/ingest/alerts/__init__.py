"""Step 9 of the way of a reading: the rules and alerts of a partition's zones."""
