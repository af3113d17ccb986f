"""Step 4 of the way of a reading: what a partition goes on from after a restart."""
