"""Pre-training of networks: recordings of a fleet of simulated sites, examples of them, the training, what it gives."""
