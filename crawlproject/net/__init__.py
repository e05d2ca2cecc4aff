"""From a URL to a socket: name resolution, the address guard, connections."""
