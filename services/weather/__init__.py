"""Where weather forecasts come from: a forecast service is polled, and its answers are published as plans."""
