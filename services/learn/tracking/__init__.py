"""Step 15 of the way of a reading: what is asked of MLflow, the tracking server, and how it is kept there."""
