"""Steps 12 to 14 of the way of a reading: from the history to a judged challenger."""
