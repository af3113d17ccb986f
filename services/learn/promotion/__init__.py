"""Steps 14 to 17 of the way of a reading: from a judged challenger to the champion, and back."""
