"""Step 7 of the way of a reading: what a zone is forecast while the learners have seen few of its days."""
