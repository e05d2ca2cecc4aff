"""Its one spider."""
