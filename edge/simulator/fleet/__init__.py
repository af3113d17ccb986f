"""A fleet of simulated sites, all of them different, and many simulated at once: what networks are pre-trained on."""
