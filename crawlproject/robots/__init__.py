"""Each site's robots.txt: the copy that all workers share, and how it is fetched."""
