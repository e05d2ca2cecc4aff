"""`scrapy plan`: what a crawl of some size needs."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import asdict
from typing import NamedTuple

from scrapy.exceptions import UsageError

from crawlproject import capacity, cli
from crawlproject.capacity import IMAGES, PAGES, Demand, Kind, Plan

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kMG]?)")
_FACTORS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_MOST = 1e12
_SOURCES = 10_000


class _Assumed(NamedTuple):
    """An option for what is assumed: the field of `Demand`, what it means, its default of each kind."""

    option: str
    field: str
    meaning: str
    images: float | None = None  # None: not for this kind
    pages: float | None = None

    def default(self, kind: Kind) -> float | None:
        """Return what is assumed of a kind."""
        return self.images if kind is IMAGES else self.pages


_ASSUMED = (
    _Assumed("image-bytes", "body_bytes", "bytes of an image as the site sends it", IMAGES.body_bytes),
    _Assumed("thumbnail-bytes", "kept_bytes", "bytes of a thumbnail; 0: none is kept", IMAGES.kept_bytes),
    _Assumed("page-bytes", "body_bytes", "bytes of a page as the site sends it", pages=PAGES.body_bytes),
    _Assumed(
        "record-bytes", "kept_bytes", "bytes of a page in a WARC file; 0: none is kept", pages=PAGES.kept_bytes
    ),
    _Assumed("links", "links", "links admitted for each page that is crawled", pages=capacity.LINKS),
    _Assumed(
        "link-bytes",
        "link_bytes",
        "bytes of a link in the seen filter; 2.3 with CRAWL_SEEN_LINKS=bloom:0.001",
        pages=capacity.SEEN_BYTES,
    ),
    _Assumed(
        "delay", "delay", "seconds between two pages of a source: CRAWL_PAGES_DELAY", pages=capacity.PAGE_DELAY
    ),
    _Assumed(
        "cpu-ms",
        "cpu_ms",
        "milliseconds of CPU that an image or a page costs a worker",
        IMAGES.cpu_ms,
        PAGES.cpu_ms,
    ),
    _Assumed("replicas", "replicas", "replicas of each Redis", 1, 1),
    _Assumed(
        "redis-gb", "redis_gb", "gigabytes of memory of one Redis at most", capacity.REDIS_GB, capacity.REDIS_GB
    ),
    _Assumed("core-price", "core_price", "price of a core for an hour", capacity.CORE_PRICE, capacity.CORE_PRICE),
    _Assumed(
        "gb-price",
        "gb_price",
        "price of a gigabyte of memory for an hour",
        capacity.GB_PRICE,
        capacity.GB_PRICE,
    ),
)


class Command(cli.Command):
    """Say what a crawl of so many images or pages, at so many a second, needs: Redis, workers, bandwidth, storage,
    and what the machines cost a day. It multiplies what benchmarks have measured, and asks nobody. The prices are
    assumptions: give your own.
    """

    summary = "Say what a crawl of some size needs"
    examples = (
        "scrapy plan --images 500M --rate 3000",
        "scrapy plan --images 10M --rate 100 --core-price 0.02",
        "scrapy plan --pages 1G --rate 1000 --sources 1M",
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the sizes, and what is assumed."""
        super().add_options(parser)
        parser.add_argument("--images", metavar="N", help="images to crawl, as in 500M; or")
        parser.add_argument("--pages", metavar="N", help="pages to crawl")
        parser.add_argument("--rate", metavar="N", help="images or pages a second")
        parser.add_argument("--sources", metavar="N", help="sources that they are spread over (10k)")
        for option, _, meaning, images, pages in _ASSUMED:
            defaults = dict.fromkeys(f"{value:g}" for value in (images, pages) if value is not None)
            parser.add_argument(f"--{option}", metavar="N", help=f"{meaning} ({', '.join(defaults)})")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if args or (opts.images is None) == (opts.pages is None) or opts.rate is None:
            raise UsageError("expected --images N or --pages N, and --rate N")
        kind = IMAGES if opts.pages is None else PAGES
        count = _whole(kind.name, vars(opts))
        assumed = _assumed(kind, vars(opts))
        demand = Demand(
            kind=kind,
            count=count,
            rate=_number("rate", vars(opts), above=True),
            sources=_whole("sources", vars(opts)) if opts.sources is not None else min(count, _SOURCES),
            replicas=round(assumed.pop("replicas")),
            **assumed,
        )
        if demand.sources > demand.count:
            raise UsageError(f"--sources must not be more than --{kind.name}")
        found = capacity.plan(demand)
        cli.show(json.dumps(asdict(found), indent=2) if opts.json else for_people(demand, found))


def _assumed(kind: Kind, options: dict[str, str | None]) -> dict[str, float]:
    """Return the fields of `Demand` that are assumed."""
    found: dict[str, float] = {}
    for one in _ASSUMED:
        default, is_given = one.default(kind), options[one.option.replace("-", "_")] is not None
        if default is not None:
            found[one.field] = _number(one.option, options, above=one.field == "redis_gb") if is_given else default
        elif is_given:
            raise UsageError(f"--{one.option} is not for --{kind.name}")
    return found


def _number(name: str, options: dict[str, str | None], *, above: bool = False) -> float:
    said = options[name.replace("-", "_")] or ""
    match = _NUMBER.fullmatch(said)
    number = float(match[1]) * _FACTORS[match[2]] if match else -1.0
    if not 0 <= number <= _MOST or (above and number == 0):
        raise UsageError(
            f"--{name} {said} must be a number{' above 0' if above else ''}, as in 250, 10k, 500M, 1.5G"
        )
    return number


def _whole(name: str, options: dict[str, str | None]) -> int:
    return max(round(_number(name, options, above=True)), 1)


def for_people(demand: Demand, found: Plan) -> str:
    """Return what a plan says, a line each."""
    kind = demand.kind
    how = "by default" if kind is IMAGES else f"with {demand.delay:g} s between two pages of one"
    size = " of equal size" if kind is IMAGES else ""
    bear = f"{demand.sources:,} sources{size} bear {found.allowed_rate:,.0f}/s together, {how}"
    if found.allowed_rate < demand.rate:
        needed = "no number of them does" if found.sources_needed is None else f"{found.sources_needed:,} would"
        bear += f", too few for {demand.rate:,g}/s: {needed}"
    asked = "" if found.fits else f", {found.redis_asked:.0%} with leads and heartbeats"
    kept = (
        f"{_bytes(found.thumbnail_bytes)} of thumbnails, {_bytes(found.event_bytes)} of events"
        if kind is IMAGES
        else f"{_bytes(found.record_bytes)} of WARC files, {_bytes(found.event_bytes)} of events, "
        f"{_bytes(found.overflow_bytes)} of links that wait"
    )
    prices = f"{demand.core_price:g} an hour and a GB of memory {demand.gb_price:g}"
    lines = [
        f"{demand.count:,} {kind.name} at {demand.rate:,g}/s: {found.days:,.1f} days",
        "",
        f"sites      {bear}",
        f"Redis      {found.redis_masters}, each of a core ({found.redis_share:.0%} busy{asked}) and "
        f"{_bytes(found.redis_bytes)}; replicas as large for each: {found.redis_replicas}",
        f"workers    {found.workers:,} processes of a core and {_bytes(kind.worker_bytes)}",
        f"bandwidth  {found.bandwidth / 1e9:,.2f} Gbit/s from the sites",
        f"storage    {kept}",
        f"machines   {found.cores:,} cores, {_bytes(found.memory_bytes)}: {found.price:,.0f} a day, "
        f"{found.price * found.days:,.0f} for all, if a core costs {prices}",
    ]
    if not found.fits:
        lines += [
            "",
            f"One Redis carries {kind.redis_planned:,.0f}/s and {demand.redis_gb:g} GB: this is a Redis Cluster "
            f"of {found.redis_masters} masters, {demand.rate / found.redis_masters:,.0f}/s each, with "
            f"CRAWL_SHARDS={found.shards}.",
            "How much several masters carry at once was not measured.",
        ]
    if found.redis_masters > found.shards:
        lines.append(
            "A crawl has no more masters than shards: divide it into several, with a CRAWL_NAMESPACE each."
        )
    return "\n".join(lines)


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"
