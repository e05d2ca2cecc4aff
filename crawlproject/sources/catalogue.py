"""The catalogue: rows of sources with their sizes, hosts and options."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crawlproject.config import CircuitRules
from crawlproject.errors import CatalogueError
from crawlproject.sources.domains import domain_of, domain_of_url
from crawlproject.sources.names import source_name
from crawlproject.sources.rates import rate_for


class BadRow(NamedTuple):
    """An invalid row of the catalogue: its number from 1, its source if it names one, and what is wrong."""

    number: int
    source: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The parsed catalogue: the rate of each source by its size, and the source of each registrable domain.

    `options` has everything else: source to JSON with `circuit` (rules as the scripts read them) and `robots`
    ("ignore"). `bad` are the rows that were left out.
    """

    limits: Mapping[str, float]
    hosts: Mapping[str, str]
    options: Mapping[str, str] = field(default_factory=dict)
    bad: Sequence[BadRow] = ()


def parse_catalogue(text: str | bytes) -> Catalogue:
    """Parse a catalogue: a JSON array of rows as docs/flow.md describes them.

    A domain that several sources claim goes to the smallest: a seed without a source must not be fetched faster
    than the smallest of them can bear. An invalid row is left out; so is the second of two rows for the same
    source.

    Raises:
        CatalogueError: it is not such an array, or none of its rows is valid.

    """
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CatalogueError(f"the catalogue is not JSON: {error}") from None
    if not isinstance(rows, list):
        raise CatalogueError(f"the catalogue must be a JSON array of rows, not {type(rows).__name__}")
    limits: dict[str, float] = {}
    options: dict[str, str] = {}
    claims: dict[str, tuple[float, str]] = {}
    bad: list[BadRow] = []
    for number, row in enumerate(rows, 1):
        try:
            source, size, hosts = _row(row)
            of_source = _options(row)
            if source in limits:
                raise ValueError(f"{source} is listed twice")
        except ValueError as error:
            bad.append(BadRow(number, _source_of(row), str(error)))
            continue
        limits[source] = rate_for(size)
        if of_source:
            options[source] = json.dumps(of_source)
        for host in hosts:
            claims[host] = min(claims.get(host, (math.inf, "")), (limits[source], source))
    if bad and not limits:
        raise CatalogueError(
            f"none of the {len(rows)} rows of the catalogue is valid; row {bad[0].number}: {bad[0].reason}"
        )
    return Catalogue(limits, {host: source for host, (_, source) in claims.items()}, options, bad)


def _source_of(row: Any) -> str | None:
    """Return the source that a row names, None if it names none."""
    try:
        return source_name(row.get("source_name")) if isinstance(row, dict) else None
    except ValueError:
        return None


def _row(row: Any) -> tuple[str, int, set[str]]:
    if not isinstance(row, dict):
        raise ValueError("not an object")  # noqa: TRY004
    source = source_name(row.get("source_name"))
    size = row.get("image_count", row.get("media_count"))
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ValueError(f"image_count of {source} must be a whole number from 0, not {size!r}")
    hosts = row.get("hosts") or []
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise ValueError(f"hosts of {source} must be a list of host names")
    url = row.get("source_url") or ""
    if not isinstance(url, str):
        raise ValueError(f"source_url of {source} must be a string")  # noqa: TRY004
    domains = {domain_of(host) for host in hosts} | {domain_of_url(url)}
    return source, size, domains - {""}


def _options(row: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    circuit = row.get("circuit")
    if circuit is not None:
        if not isinstance(circuit, dict):
            raise ValueError("circuit must be an object of rules")
        options["circuit"] = CircuitRules.pack(CircuitRules.parse(circuit))
    robots = row.get("robots")
    if robots == "ignore":
        options["robots"] = "ignore"
    elif robots is not None:
        raise ValueError(f'robots can be "ignore", where the source has given permission, not {robots!r}')
    return options
