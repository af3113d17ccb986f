"""Rules over what is foreseen, measured and known of zones; chances that are calibrated; alerts and their scores."""
