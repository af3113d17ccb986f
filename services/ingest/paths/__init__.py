"""What is said of a zone from its path: events and scenarios."""
