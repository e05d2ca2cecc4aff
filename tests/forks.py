"""Commands of scrapy, as the tests run them: see benchmarks/forks.py."""

from __future__ import annotations

from benchmarks.forks import forks

__all__ = ["forks"]
