"""Step 9 of the way of a reading: what an API replica asks of named actors, of the Forecaster and of the storage."""
