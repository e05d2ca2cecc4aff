"""Sources: their sizes, their hosts, and the rates that follow from the sizes. Pure rules."""
