"""MQTT: connections, subscriptions, and the broker for one machine."""
