"""The climate in and around a greenhouse that is not there: weather, light, heat, vapour and CO₂."""
