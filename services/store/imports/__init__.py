"""Step 6 of the way of a reading: history that came from outside, on its way into the history."""
