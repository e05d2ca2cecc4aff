"""What a page's headers and meta tags forbid: following its links, reporting it, taking its images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from scrapy.http import Headers

from crawlproject.models import OPT_OUTS
from crawlproject.politeness.robots_txt import TOKEN, opt_outs, robots_rules

NO_IMAGES = frozenset(("noimageindex", "noai", "noimageai"))  # whose images are not taken

_META_NAMES = frozenset(("robots", TOKEN))
_LONGEST = 4096  # characters of a meta tag


@dataclass(frozen=True, slots=True)
class Rules:
    """What is forbidden: `opt_outs` by their names in `OPT_OUTS`, sorted."""

    nofollow: bool
    opt_outs: tuple[str, ...]

    @property
    def noimages(self) -> bool:
        """Whether its images are not to be taken."""
        return not NO_IMAGES.isdisjoint(self.opt_outs)


def rules_of(headers: Headers, metas: Iterable[tuple[str, str]], now: datetime) -> Rules:
    """Return what the headers of a response, and the meta tags (name and content) of its page, forbid us.

    Meta tags are `robots`, for all, and `crawlproject`, for us; what they and X-Robots-Tag say applies
    together, as Google documents it. `tdm-reservation` is that of the TDM Reservation Protocol.
    """
    said = {
        rule
        for value in headers.getlist("X-Robots-Tag")
        for rule in robots_rules(value.decode("latin-1").lower(), now)
    }
    found = set(opt_outs(headers, now))
    for name, content in metas:
        if name in _META_NAMES:
            said.update(robots_rules(content[:_LONGEST].lower(), now))
        elif name == "tdm-reservation" and content.strip() == "1":
            found.add(name)
    return Rules("nofollow" in said, tuple(sorted(found | (said & OPT_OUTS.keys()))))


def header(headers: Headers, name: str) -> str:
    """Return the value of a header, of several the last one; "" without any."""
    return (headers.get(name) or b"").decode("latin-1")
