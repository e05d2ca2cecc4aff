"""The crawler measured: against what was promised, and against its peers. Not run by the tests."""
