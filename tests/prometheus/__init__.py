"""Rules, routes and dashboards under deploy/, held against the real Prometheus and Alertmanager."""
