"""What is kept in Redis, and every command that is sent to it."""
