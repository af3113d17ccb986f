"""Steps 6 and 9 of the way of a reading: where closed rows and issued forecasts go."""
