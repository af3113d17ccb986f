"""The package's network, fine-tuned to what shards kept (ADR 65)."""
