"""Step 7 of the way of a reading: what is usual at an hour of day, and how far it is off now: the first forecast."""
