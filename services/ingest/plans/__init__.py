"""Step 5 of the way of a reading: what is foreseen for the sites of a partition."""
