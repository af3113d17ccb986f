"""Step 9 of the way of a reading: the routes of the API, by what they are about."""
