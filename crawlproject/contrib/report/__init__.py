"""The report of a source as a page of HTML: one file, without scripts, that loads nothing."""
