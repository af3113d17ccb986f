"""What a running system needs around it: Ray, its ingress, ports, locks, child processes."""
