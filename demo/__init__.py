"""The demo: a gallery of made-up sources on loopback, to watch the crawler at work on real pictures."""
