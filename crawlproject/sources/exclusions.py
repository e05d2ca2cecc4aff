"""Names that are excluded from the crawl: of sources, and of domains; and the file that lists them."""

from __future__ import annotations

import re
from pathlib import Path

from crawlproject.errors import ConfigError
from crawlproject.sources.domains import normal_host
from crawlproject.sources.names import source_name

_ADDRESS = re.compile(r"\[([0-9a-f:.]+)\]")
_WITH_PORT = re.compile(r"[^:]*\.[^:]*:\d+|\[.*\]:\d+")


def exclusion_name(value: str) -> str:
    """Return the name of a source or a domain as exclusions have it; a domain as in URLs: `xn--...`.

    Raises:
        ValueError: it is neither; a URL, for one. The message says what to name in its place.

    """
    name = value.strip().lower()
    if "/" in name or _WITH_PORT.fullmatch(name) or name.startswith(("*", ".")):
        raise ValueError(
            f"{value!r:.60} is neither a source nor a domain: name the domain alone, as in museum.example, "
            "which stands for all hosts below it, too"
        )
    if match := _ADDRESS.fullmatch(name):
        name = match[1]
    return source_name(normal_host(name) if "." in name else name)


def domains_above(host: str) -> list[str]:
    """Return a host and the domains that it belongs to, but for the top-level one; as preludes/exclusions.lua."""
    found, domain = [host], host.partition(".")[2]
    while "." in domain:
        found.append(domain)
        domain = domain.partition(".")[2]
    return found


def parse_exclusions(text: str) -> dict[str, str]:
    """Return the names in the text of a `CRAWL_EXCLUDE` file, each with the comment in its line.

    Raises:
        ValueError: a line is invalid; the message says which.

    """
    names: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, _, comment = line.partition("#")
        if name.strip():
            try:
                names[exclusion_name(name)] = comment.strip()[:300]
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return names


def read_exclusions(path: str) -> dict[str, str]:
    """Return the names in a `CRAWL_EXCLUDE` file, each with its comment. Blocks.

    Raises:
        ConfigError: it cannot be read, or a line is invalid; the message begins with the setting.

    """
    try:
        return parse_exclusions(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"CRAWL_EXCLUDE={path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"CRAWL_EXCLUDE={path} is not UTF-8") from None
    except ValueError as error:
        raise ConfigError(f"CRAWL_EXCLUDE={path}, {error}") from None
