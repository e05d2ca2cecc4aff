"""Names that are excluded from the crawl: of sources, and of domains; and the file that lists them."""

from __future__ import annotations

import re
from pathlib import Path

from crawlproject.errors import ConfigError
from crawlproject.sources.domains import canonical_host
from crawlproject.sources.names import is_name, source_name

_LABEL = r"[a-z0-9_\-\u0080-\U0010ffff]+"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})+\.?")
_COMMENT = re.compile(r"(?:^|\s)#")


def exclusion_names(value: str) -> list[str]:
    """Return the names by which exclusions have a source or a domain: as in URLs (`xn--...`), and as in seeds.

    Raises:
        ValueError: it is neither; a URL, for one. The message says what to name in its place.

    """
    bare = value.strip()
    if any(char in bare for char in "/*@"):
        raise ValueError(
            f"{value!r:.60} is neither a source nor a domain: name the domain alone, as in museum.example, "
            "which stands for all hosts below it, too"
        )
    host = canonical_host(bare)
    if is_domain(host) and not is_name(bare.lower()):  # an IPv6 address in brackets, for one
        return [host]
    name = source_name(bare)
    return list(dict.fromkeys([host or name, name])) if is_domain(name) else [name]


def is_domain(name: str) -> bool:
    """Tell whether a name in lower case may be a domain or an address; otherwise it is that of a source alone."""
    return _DOMAIN.fullmatch(name) is not None or (":" in name and canonical_host(name) != "")


def domains_above(host: str) -> list[str]:
    """Return a host and its domains, but for the top-level one; as the Lua module `exclusions`."""
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
        name, *comment = _COMMENT.split(line, maxsplit=1)
        if name.strip():
            try:
                if name.strip().startswith("."):
                    raise ValueError(f"{name.strip()!r:.60} begins with a dot: leave it out")
                names |= dict.fromkeys(exclusion_names(name), "".join(comment).strip()[:300])
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
