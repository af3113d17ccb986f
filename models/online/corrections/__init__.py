"""Step 7 of the way of a reading: what moves the mixed median: plans, and networks that were trained before."""
