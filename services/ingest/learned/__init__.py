"""Step 7 of the way of a reading: rows, learners and live scores of a partition, as parts of a snapshot."""
