"""Where events go from the streams."""
