"""Pure functions and small classes: no Ray, no sockets, no environment, no wall clock."""
