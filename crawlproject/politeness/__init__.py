"""Decisions about politeness, without any input or output."""
