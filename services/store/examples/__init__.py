"""Examples that a network is fine-tuned on, as shards keep them and the job reads them."""
