"""The climate in and around a simulated greenhouse: weather, light, heat, vapour and CO₂."""
