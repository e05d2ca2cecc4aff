"""Seeds from Kafka, and events to Kafka."""
