"""Work in a thread of its own: given a limit, or done again every few seconds."""
