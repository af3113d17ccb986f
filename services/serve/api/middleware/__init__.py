"""What stands around the whole application, and sees a request before its route does."""
