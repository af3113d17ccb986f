"""Forecasts of a whole day ahead as paths, scenarios of them, and what is read from scenarios."""
