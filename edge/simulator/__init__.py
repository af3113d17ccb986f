"""A greenhouse that is not there: weather, physics, climate control and sensors, and the replay of recordings."""
