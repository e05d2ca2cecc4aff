"""Seven kinds of traps: spaces of addresses without end that a crawl can fall into, as real sites have them."""

from __future__ import annotations

import re
from random import Random
from urllib.parse import parse_qsl

TRAPS = ("calendar", "relative", "session", "facets", "deep", "flat", "hosts")

_MONTH = re.compile(r"/events/(\d+)/(\d+)")


def entries(trap: str, domain: str, width: int, rng: Random) -> list[str]:
    """Return what a real page links to of a trap.

    `domain` has the port, too, where it needs one. `width` is how many links a page of the widest trap has.
    """
    links: list[str] = []  # session identifiers are on every link: see `with_session`
    if trap == "calendar":
        links = ["/events/2026/01"]
    elif trap == "relative":
        links = ["/about/"]
    elif trap == "facets":
        links = _more_facets("", rng)
    elif trap == "deep":
        links = _deeper("/x", width * 2 // 5, rng)
    elif trap == "flat":
        links = _items(width, rng)
    elif trap == "hosts":
        links = _hosts(domain, width * 2 // 5, rng)
    return links


def inside(trap: str, domain: str, path: str, width: int, rng: Random) -> tuple[str, list[str]] | None:
    """Return the text of a page in a trap and the links that lead on; None if `path` (and query) is not in it."""
    route, _, query = path.partition("?")
    segments = route.strip("/").split("/")
    found = None
    if trap == "calendar" and (month := _MONTH.match(route)):
        number = int(month[1]) * 12 + int(month[2]) - 1
        days = [f"{_month(number)}/{day:02d}" for day in range(1, 29)]
        found = f"Nothing happens here: {' '.join(segments)}", [_month(number - 1), _month(number + 1), *days]
    elif trap == "relative" and route.endswith("/") and segments[0] in {"about", "contact", "news"}:
        found = "About us", ["about/", "contact/", "news/"]
    elif trap == "facets" and route == "/shop":
        found = f"Things to buy, by {len(parse_qsl(query))} filters", _more_facets(query, rng)
    elif trap == "deep" and segments[0] == "x":
        found = f"Level {len(segments)}", _deeper(route, width * 2 // 5, rng)
    elif trap == "flat" and route.startswith("/item-"):
        found = f"Item {route}", _items(width, rng)
    elif trap == "hosts" and route == "/":
        found = "One more host", _hosts(domain, width * 2 // 5, rng)
    return found


def with_session(link: str, rng: Random) -> str:
    """Return a link with a session identifier, another one each time."""
    return f"{link}{'&' if '?' in link else '?'}sid={rng.getrandbits(64):016x}"


def _month(number: int) -> str:
    return f"/events/{number // 12}/{number % 12 + 1:02d}"


def _more_facets(query: str, rng: Random) -> list[str]:
    chosen = dict(parse_qsl(query))
    filters = (chosen | {f"f{number}": str(rng.randrange(9))} for number in range(12))
    return ["/shop?" + "&".join(f"{name}={value}" for name, value in sorted(one.items())) for one in filters]


def _deeper(route: str, number: int, rng: Random) -> list[str]:
    return [f"{route}/{rng.getrandbits(32):x}" for _ in range(number)]


def _items(number: int, rng: Random) -> list[str]:
    return [f"/item-{rng.getrandbits(40):x}.html" for _ in range(number)]


def _hosts(domain: str, number: int, rng: Random) -> list[str]:
    return [f"http://{rng.getrandbits(32):08x}.{domain}/" for _ in range(number)]
