"""Rules of politeness, as functions without input or output."""
