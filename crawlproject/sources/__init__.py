"""Sources: how large they are, which hosts are theirs, and the rate that follows. Pure rules."""
