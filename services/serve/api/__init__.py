"""Step 9 of the way of a reading: the HTTP API."""
