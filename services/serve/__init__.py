"""Steps 7, 9 and 16 of the way of a reading: forecasts by the champion, shown and answered over HTTP."""
