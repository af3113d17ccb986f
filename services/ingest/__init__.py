"""Steps 4 to 9 of the way of a reading: log -> rows -> history, forecasts and scores, one shard a set of partitions."""
