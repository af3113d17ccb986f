"""What networks are pre-trained on: recordings of a fleet of simulated sites, as a folder of plain files."""
