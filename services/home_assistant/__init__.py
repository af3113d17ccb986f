"""Step 9 of the way of a reading: zones as devices of Home Assistant, through MQTT (docs/home-assistant.md)."""
