"""Probes: from the beginning of a picture whether it is there, what it is, and whether it has changed."""
