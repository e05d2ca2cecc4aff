"""From a fetched body to an event."""
