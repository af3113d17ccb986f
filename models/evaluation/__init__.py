"""How good forecasts are: scores, drift, and the gate between two models."""
