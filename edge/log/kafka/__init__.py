"""The log on Kafka, for production."""
