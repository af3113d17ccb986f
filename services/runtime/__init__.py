"""The ground that a running system stands on: Ray, its ingress, ports, locks, child processes."""
