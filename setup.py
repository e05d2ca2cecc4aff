"""Enough for `scrapyd-deploy`, which builds its egg with this file; the metadata is in pyproject.toml."""

from setuptools import setup

setup()
