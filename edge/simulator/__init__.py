"""A simulated greenhouse: weather, physics, climate control and sensors, and the replay of recordings."""
