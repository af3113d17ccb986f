"""Steps 7 and 9 of the way of a reading: how a shard reaches actors that may restart at any time."""
