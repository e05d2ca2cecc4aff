"""From the bytes of a picture to its facts and its thumbnail. Pure: no network, no disk, no settings."""
