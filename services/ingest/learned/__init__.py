"""Steps 5, 7, 8 and 10 of the way of a reading: what a partition has learned of its zones, as parts of a snapshot."""
