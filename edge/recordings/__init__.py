"""Recordings of real greenhouses: what their columns mean, how they are read, replayed and imported."""
