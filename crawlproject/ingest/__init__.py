"""Seeds in: from files and from Kafka."""
