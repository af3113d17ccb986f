"""Step 5 of the way of a reading: event time -> one row a zone and step."""
