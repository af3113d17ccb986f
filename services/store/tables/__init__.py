"""Step 6 of the way of a reading: tables that other programs read while rows are added (Delta Lake)."""
