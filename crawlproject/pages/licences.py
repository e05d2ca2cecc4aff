"""Licences by their URLs: which one it is, however it is spelled."""

from __future__ import annotations

import re
from typing import NamedTuple

from crawlproject.pages.canonical import canonical_url

_CC = re.compile(
    r"https?://(?:www\.|mirrors\.)?creativecommons\.(?:org|net)/"
    r"(?P<area>licen[cs]es|publicdomain)/(?P<code>[a-z+-]{2,20})"
    r"(?:/(?P<version>\d\.\d))?(?:/(?P<place>(?!rdf\b|deed\b|legalcode\b)[a-z]{2,8}))?"
    r"(?:/(?:(?:deed|legalcode)(?:[._-]?[a-z_-]{0,12})?(?:\.html)?|rdf)?)?/?(?:[?#].*)?",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
# All that Creative Commons has published, retired ones, too.
_CODES = frozenset(
    (
        *("by", "by-sa", "by-nd", "by-nc", "by-nc-sa", "by-nc-nd", "by-nd-nc", "nc", "nd", "sa", "nc-sa", "nd-nc"),
        *("nc-nd", "sampling", "sampling+", "nc-sampling+", "devnations"),
    )
)
_RIGHTS = re.compile(
    r"https?://(?:www\.)?rightsstatements\.org/(?:vocab|page)/([A-Za-z-]{2,12})/(\d\.\d)/?.*", re.ASCII
)


class Licence(NamedTuple):
    """A licence: its URL in one spelling, and its short name, "" where that is not known."""

    url: str
    name: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is one of Creative Commons, or a dedication to the public domain."""
        return self.name.startswith(("CC", "PDM", "Public domain"))


def licence_of(url: str, base: str | None = None) -> Licence | None:
    """Return the licence that a URL names; None if it is not a web URL.

    Deeds and legal codes, in any language, and http and https are the same licence. What is not known by its
    URL is returned as it is, without a name: whoever calls this has found it marked as a licence.
    """
    found = canonical_url(url.strip(), base)
    if found is None:
        return None
    return known_licence(found) or Licence(found)


def known_licence(url: str) -> Licence | None:
    """Return the licence that an absolute URL names by itself, None if it is none that is known."""
    match = _CC.fullmatch(url)
    if match:
        return _creative_commons(
            *(part and part.lower() for part in match.group("area", "code", "version", "place"))
        )
    if match := _RIGHTS.fullmatch(url):
        return Licence(f"http://rightsstatements.org/vocab/{match[1]}/{match[2]}/", f"RS {match[1]} {match[2]}")
    return None


def _creative_commons(
    area: str | None, code: str | None, version: str | None, place: str | None
) -> Licence | None:
    root = "https://creativecommons.org"
    if area == "publicdomain" and code in {"zero", "mark"}:
        version = version or "1.0"
        name = "CC0" if code == "zero" else "PDM"
        return Licence(f"{root}/publicdomain/{code}/{version}/", f"{name} {version}")
    if code == "publicdomain":
        return Licence(f"{root}/licenses/publicdomain/", "Public domain")
    if code not in _CODES or area == "publicdomain" or version is None:
        return None  # an overview of licences, or none
    if code == "by-nd-nc":
        code = "by-nc-nd"  # as it was called in version 1.0
    port = f"{place}/" if place else ""
    name = f"CC {code.upper()} {version}" + (f" {place.upper()}" if place else "")
    return Licence(f"{root}/licenses/{code}/{version}/{port}", name)
