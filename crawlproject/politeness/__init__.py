"""The rules of politeness, without any input or output."""
