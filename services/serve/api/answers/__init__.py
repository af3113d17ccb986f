"""What routes answer: alerts and rules, forecasts, problems."""
