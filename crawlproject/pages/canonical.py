"""The one spelling of a page's address: equal spellings are one page to the seen filter."""

from __future__ import annotations

import re
from functools import lru_cache

import ada_url
from w3lib.url import canonicalize_url

from crawlproject.sources.domains import url_fault, with_canonical_host

LONGEST = 2048  # characters; what is longer is no address of a page
MOST_PARAMETERS = 20  # nor is what has more, those that are left out included

_PLAIN = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]+)?/[A-Za-z0-9._~/-]*+")  # nothing to do about
_TOKEN = r"(?:[0-9a-z]{16,}+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"  # no number of an article
_SESSION_IN_PATH = re.compile(
    rf";(?:(?:jsessionid|phpsessid)=[^/?#;]*+|sid={_TOKEN}(?=[/?#;]|\Z))|/\(S\([a-z0-9]{{24}}\)\)", re.IGNORECASE
)
# Parameters that say who comes, or from where, and not what is shown; some names only by their values.
_SHARED_BY = (
    r"(?:jetpack-)?whatsapp|facebook|twitter|x|linkedin|pinterest|reddit|tumblr|telegram|pocket|email|print|skype|mastodon"
    r"|bluesky|threads|nextdoor|google-plus-1|press-this|custom-\d+"
)
_NOISE = re.compile(
    r"(?:(?:utm_\w+|fbclid|gclid|gbraid|wbraid|dclid|msclkid|yclid|twclid|ttclid|mc_[ce]id|igshid|_gac?|_gl|_hsenc|_hsmi"
    r"|phpsessid|jsessionid|aspsessionid\w*|oscsid|zenid|cfid|cftoken|replytocom)(?:=.*)?"
    rf"|(?:sid|s_id|sessionid|session_id)=(?:{_TOKEN})?|share=(?:{_SHARED_BY})?)",
    re.IGNORECASE | re.ASCII,
)


def canonical_url(url: str, base: str | None = None) -> str | None:
    """Return an address in its one spelling, joined to `base`; None if it is none of a page on the web.

    It is absolute, http or https, without user name, password and fragment, of `LONGEST` characters and
    `MOST_PARAMETERS` parameters at most. It is written as browsers do (the WHATWG URL standard, by Ada), then
    by w3lib, which sorts the query, then without session identifiers and tracking parameters. The result is its
    own canonical form.
    """
    found = _joined(url, base)
    if found is None or len(found) > LONGEST:  # first: it would take the longer
        return None
    if not _PLAIN.fullmatch(found):
        if found.count("&") >= MOST_PARAMETERS:
            return None
        try:
            found = _without_noise(found)
        except ValueError:
            return None
    return _at_site(found) if len(found) <= LONGEST else None


def _joined(url: str, base: str | None) -> str | None:
    """Return an absolute address on the web, without its fragment; None if it is none."""
    if len(url) > LONGEST:
        return None
    try:
        joined = ada_url.join_url(base, url) if base is not None else ada_url.normalize_url(url)
    except ValueError:
        return None
    return joined.partition("#")[0] if joined.startswith(("http://", "https://")) else None


@lru_cache(1024)  # of links that stand on many pages of a site
def _without_noise(url: str) -> str:
    url = canonicalize_url(_SESSION_IN_PATH.sub("", url))
    head, mark, query = url.partition("?")
    kept = [one for one in query.split("&") if one and not _NOISE.fullmatch(one)]
    url = f"{head}?{'&'.join(kept)}" if mark and kept else head
    return canonicalize_url(ada_url.normalize_url(url))


def _at_site(url: str) -> str | None:
    """Return a URL, as Ada writes it, with its host in the one spelling; None if nothing may be fetched there."""
    path = url.index("/", len("https://"))
    site = _site(url[:path])
    return site and site + url[path:]


@lru_cache(1024)  # of the few sites that a page links to
def _site(origin: str) -> str | None:
    origin = with_canonical_host(origin)
    return None if url_fault(origin) else origin


def image_url(url: str, base: str | None = None) -> str | None:
    """Return an image's absolute address; None if it is none on the web.

    As the page has it, for each parameter may choose another image: only joined, and without its fragment.
    """
    found = _joined(url, base)
    return found and _at_site(found)
