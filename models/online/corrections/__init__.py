"""Steps 7 and 8 of the way of a reading: what moves a forecast that was mixed, as plans and trained networks do."""
