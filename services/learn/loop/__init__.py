"""Steps 11 and 17 of the way of a reading: what starts a training, and what runs the learning loop."""
