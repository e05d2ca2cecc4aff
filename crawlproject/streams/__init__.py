"""The streams of events, and their readers."""
