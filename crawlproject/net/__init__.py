"""From a URL to a socket: addresses that may be reached, names, connections."""
