"""How far a crawl may go from its seeds: their domains, their hosts, or a pattern; never the whole web."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import quote

from crawlproject.sources.domains import canonical_host, domain_of, host_of_url, url_fault, with_canonical_host
from crawlproject.texts import printable

DEFAULT = "domain"
_LONGEST = 300  # characters of a pattern
_MOST_PARTS = 8  # between its asterisks
_NOT_IN_A_URL = re.compile(r"[^!-~]+")


@dataclass(frozen=True, slots=True)
class Scope:
    """What belongs to a crawl. `text` is what it is stored as, and `Scope.parse(text)` gives it back.

    The texts are `domain:museum.example` (the registrable domain and all hosts below it),
    `host:www.museum.example` (that host alone), and `pattern:*.museum.example/collection/*`: a host, in which a
    leading `*.` stands for it and all hosts below it, and a path with its query, in which `*` stands for
    anything; a path stands for all that begins with it, unless it ends with `$`, as in robots.txt (RFC 9309).
    No pattern is a regular expression: it is matched in one pass, whatever it and the address are. http and
    https, and all ports, are in it alike.
    """

    text: str
    kind: Literal["domain", "host", "pattern"]
    host: str
    below: bool = False
    path: str = ""

    @classmethod
    def of_seed(cls, url: str, scope: str = DEFAULT) -> Scope:
        """Return the scope of a seed: `domain` or `host` are those of its URL, all else is a text or a pattern.

        Raises:
            ValueError: the URL has no host, the pattern is invalid, or it is about other hosts than the seed's.
            The
                message says what to write in its place.

        """
        scope, url = scope.strip(), with_canonical_host(url)
        if scope in {"domain", "host"}:
            if fault := url_fault(url):
                raise ValueError(fault)
            host = host_of_url(url)
            return cls.parse(f"{scope}:{domain_of(host) if scope == 'domain' else host}")
        found = cls.parse(scope)
        if not found._has_host(host_of_url(url)):
            raise ValueError(f"scope {_shown(scope)} is not about the host of its seed {printable(url, 80)}")
        return found

    @classmethod
    @lru_cache(256)
    def parse(cls, text: str) -> Scope:
        """Return the scope that a text names; without a kind in front it is a pattern.

        Raises:
            ValueError: it names no domain, or a public suffix such as `co.uk`, which would be much of the web.

        """
        kind, colon, rest = text.strip().partition(":")
        if not colon or kind not in {"domain", "host", "pattern"}:
            kind, rest = "pattern", text.strip()
        rest = rest.removeprefix("https://").removeprefix("http://")
        name, slash, path = rest.partition("/")
        try:  # as a canonical URL has it
            path = _NOT_IN_A_URL.sub(lambda found: quote(found[0]), path)
        except UnicodeEncodeError:
            raise ValueError(f"scope {_shown(text)} is not UTF-8") from None
        below = name.startswith("*.")
        host = canonical_host(name.removeprefix("*."))
        if len(host + path) > _LONGEST or path.count("*") >= _MOST_PARTS:
            raise ValueError(
                f"scope {_shown(text)} is too long: {_LONGEST} characters and {_MOST_PARTS - 1} asterisks at most"
            )
        if not host or (below and ("." not in domain_of(host))):
            raise ValueError(
                f"scope {_shown(text)} names no host: write domain, host, or a pattern such as "
                "*.museum.example/collection/*"
            )
        if kind == "domain":
            return cls(f"domain:{domain_of(host)}", "domain", domain_of(host), below=True)
        if kind == "host":
            return cls(f"host:{host}", "host", host)
        if below and _is_suffix(host):
            raise ValueError(f"scope {_shown(text)} is much of the web: name a domain below {host}")
        return cls(f"pattern:{'*.' if below else ''}{host}{slash}{path}", "pattern", host, below, slash + path)

    def has(self, url: str) -> bool:
        """Tell whether an absolute URL is in the scope."""
        return self._has_host(host_of_url(url)) and (
            self.kind != "pattern" or _pattern(self.path).match(_reference(url)) is not None
        )

    def _has_host(self, host: str) -> bool:
        if self.kind == "domain":
            return bool(host) and domain_of(host) == self.host
        return host == self.host or (self.below and host.endswith("." + self.host))


@lru_cache(256)
def _pattern(path: str) -> re.Pattern[str]:
    """Return what matches a path pattern; each part is matched at the first place after the one before."""
    glob = path.removesuffix("$").replace("[", "[[]").replace("?", "[?]") + ("" if path.endswith("$") else "*")
    return re.compile(fnmatch.translate(glob))


def _is_suffix(host: str) -> bool:
    """Tell whether a name is a public suffix, below which strangers have their domains."""
    return domain_of(f"a.{host}") == f"a.{host}"


def _reference(url: str) -> str:
    start = url.find("/", url.find("//") + 2)
    return url[start:].partition("#")[0] if start > 0 else "/"


def _shown(text: str) -> str:
    return repr(printable(text, 80))
