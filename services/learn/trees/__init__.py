"""Step 13 of the way of a reading, for trees: grown on the history, again every few days."""
