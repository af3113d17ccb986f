"""Commands about the history: rows that come in from outside."""
