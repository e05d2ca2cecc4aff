"""What strangers can send, tried against the project's own code, by kind: see `__main__.py`."""
