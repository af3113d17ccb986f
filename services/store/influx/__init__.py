"""Step 6 of the way of a reading: what InfluxDB is sent, and what of it waits in the history."""
