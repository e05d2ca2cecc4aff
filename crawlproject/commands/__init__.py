"""Commands of `scrapy`, each in the module of its name; `crawlproject/cli.py` holds what they share."""

from crawlproject.cli import opened_state, remark_unknown, reports_errors, source_names

__all__ = ["QUIET", "opened_state", "remark_unknown", "reports_errors", "source_names"]

QUIET = {"LOG_ENABLED": False}
