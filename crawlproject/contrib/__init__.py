"""Plug-ins that come with crawlproject: folders that can be deleted, each on its own (docs/plugins.md)."""
