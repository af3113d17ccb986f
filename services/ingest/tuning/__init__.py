"""In a shard: the network that is fine-tuned to its sites, and the examples that it is trained on."""
