"""The settings of this project: read once, typed, validated. A bad value or an unknown name stops the start.

Each can be given as a Scrapy setting (`-s NAME=value`, settings.py) and as an environment variable of the same
name; `-s` wins. Lists are comma-separated in both, and an empty value is an empty list. Durations are in seconds,
sizes in bytes, rates in requests a second.
"""

from crawlproject.config.circuit_rules import CircuitRules
from crawlproject.config.loading import (
    COMPONENTS,
    RESOLVER,
    check_components,
    check_contact,
    check_guarded,
    environment,
    load,
    project_dir,
    read,
)
from crawlproject.config.parsers import Network
from crawlproject.config.redis_url import MasterAddress, cluster_address, sentinel_address
from crawlproject.config.settings_table import SETTINGS, Config, setting, table

__all__ = [
    "COMPONENTS",
    "RESOLVER",
    "SETTINGS",
    "CircuitRules",
    "Config",
    "MasterAddress",
    "Network",
    "check_components",
    "check_contact",
    "check_guarded",
    "cluster_address",
    "environment",
    "load",
    "project_dir",
    "read",
    "sentinel_address",
    "setting",
    "table",
]
