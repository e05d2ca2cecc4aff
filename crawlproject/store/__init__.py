"""What is kept in Redis, and every word that is spoken with it."""
