"""`scrapy plan`: what a crawl of some size needs."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import asdict

from scrapy.exceptions import UsageError

from crawlproject import capacity, cli
from crawlproject.capacity import Demand, Plan

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kMG]?)")
_FACTORS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_MOST = 1e12
_SOURCES = 10_000

_ASSUMED = (  # options, what they mean, their defaults
    ("image-bytes", "bytes of an image as the site sends it", capacity.IMAGE_BYTES),
    ("thumbnail-bytes", "bytes of a thumbnail; 0: none is kept", capacity.THUMBNAIL_BYTES),
    ("cpu-ms", "milliseconds of CPU that an image costs a worker", capacity.CPU_MS),
    ("replicas", "replicas of each Redis", 1),
    ("core-price", "price of a core for an hour", capacity.CORE_PRICE),
    ("gb-price", "price of a gigabyte of memory for an hour", capacity.GB_PRICE),
)


class Command(cli.Command):
    """Say what a crawl of so many images, at so many a second, needs: Redis, workers, bandwidth, storage, and what
    the machines cost a day. It multiplies what benchmarks have measured, and asks nobody. The prices are
    assumptions: give your own.
    """

    summary = "Say what a crawl of some size needs"
    examples = ("scrapy plan --images 500M --rate 3000", "scrapy plan --images 10M --rate 100 --core-price 0.02")

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the sizes, and what is assumed."""
        super().add_options(parser)
        parser.add_argument("--images", metavar="N", help="images to crawl, as in 500M")
        parser.add_argument("--rate", metavar="N", help="images a second")
        parser.add_argument("--sources", metavar="N", help="sources that they are spread over (10k)")
        for name, meaning, default in _ASSUMED:
            parser.add_argument(f"--{name}", metavar="N", default=str(default), help=f"{meaning} ({default:g})")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if args or opts.images is None or opts.rate is None:
            raise UsageError("expected --images N and --rate N")
        assumed = {name.replace("-", "_"): _number(name, vars(opts)) for name, _, _ in _ASSUMED}
        images = _whole("images", vars(opts))
        demand = Demand(
            images=images,
            rate=_number("rate", vars(opts), above=True),
            sources=_whole("sources", vars(opts)) if opts.sources is not None else min(images, _SOURCES),
            replicas=round(assumed.pop("replicas")),
            **assumed,
        )
        if demand.sources > demand.images:
            raise UsageError("--sources must not be more than --images")
        found = capacity.plan(demand)
        cli.show(json.dumps(asdict(found), indent=2) if opts.json else for_people(demand, found))


def _number(name: str, options: dict[str, str], *, above: bool = False) -> float:
    said = options[name.replace("-", "_")]
    match = _NUMBER.fullmatch(said)
    number = float(match[1]) * _FACTORS[match[2]] if match else -1.0
    if not 0 <= number <= _MOST or (above and number == 0):
        raise UsageError(
            f"--{name} {said} must be a number{' above 0' if above else ''}, as in 250, 10k, 500M, 1.5G"
        )
    return number


def _whole(name: str, options: dict[str, str]) -> int:
    return max(round(_number(name, options, above=True)), 1)


def for_people(demand: Demand, found: Plan) -> str:
    """Return what a plan says, a line each."""
    bear = f"{demand.sources:,} sources of equal size bear {found.allowed_rate:,.0f}/s together, by default"
    if found.allowed_rate < demand.rate:
        needed = "no number of them does" if found.sources_needed is None else f"{found.sources_needed:,} would"
        bear += f", too few for {demand.rate:,g}/s: {needed}"
    prices = f"{demand.core_price:g} an hour and a GB of memory {demand.gb_price:g}"
    lines = [
        f"{demand.images:,} images at {demand.rate:,g}/s: {found.days:,.1f} days",
        "",
        f"sites      {bear}",
        f"Redis      {found.redis_masters}, each of a core ({found.redis_share:.0%} busy) and "
        f"{_bytes(found.redis_bytes)}; replicas as large for each: {found.redis_replicas}",
        f"workers    {found.workers:,} processes of a core and {_bytes(capacity.WORKER_BYTES)}",
        f"bandwidth  {found.bandwidth / 1e9:,.2f} Gbit/s from the sites",
        f"storage    {_bytes(found.thumbnail_bytes)} of thumbnails, {_bytes(found.event_bytes)} of events",
        f"machines   {found.cores:,} cores, {_bytes(found.memory_bytes)}: {found.price:,.0f} a day, "
        f"{found.price * found.days:,.0f} for all, if a core costs {prices}",
    ]
    if not found.fits:
        lines += [
            "",
            f"One Redis carries {capacity.REDIS_PLANNED:,}/s: this is a Redis Cluster of "
            f"{found.redis_masters} masters, {capacity.SHARDED_PLANNED:,}/s each, with CRAWL_SHARDS="
            f"{found.shards}.",
            "How much several masters carry at once was not measured.",
        ]
    return "\n".join(lines)


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:,.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"
