"""Step 6 of the way of a reading: where rows, issued forecasts and refused samples are kept."""
