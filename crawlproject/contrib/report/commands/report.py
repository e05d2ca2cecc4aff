"""`scrapy report`: what was requested of a site, for its admin."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from rich.filesize import decimal
from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.contrib.report.rendering import page
from crawlproject.contrib.report.site_report import site_report, source_of
from crawlproject.program import as_called
from crawlproject.texts import counted


class Command(cli.Command):
    """Report what was requested of a source in the last 90 days, for the admin of that site: when and how fast,
    what came back, the robots.txt that we obeyed, what we left out because of it and because of opt-outs, when we
    paused, who we are, and how to have us stop. All spiders count. A HOST or URL stands for the source that it
    belongs to.
    """

    arguments = "[options] SOURCE|HOST|URL"
    summary = "Report the requests to a site, for its admin"
    examples = ("scrapy report museum.example --html report.html", "scrapy report --json museum.example")

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--html", metavar="FILE", help="write it as a page of HTML; -: to stdout")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if len(args) != 1:
            raise UsageError("expected exactly one SOURCE, HOST or URL")
        if opts.json and opts.html == "-":
            raise UsageError("--json and --html - both write to stdout: give a FILE")
        report = asyncio.run(self._report(args[0]))
        if opts.html:
            cli.save(opts.html, page(report), "--html")
        if opts.json:
            print(json.dumps(report, indent=2))
        elif opts.html != "-":
            cli.show(as_called(_for_people(report)))

    async def _report(self, argument: str) -> dict[str, Any]:
        async with cli.opened_state(self) as state:
            return await site_report(state, await source_of(state, argument))


def _for_people(report: dict[str, Any]) -> str:
    totals = report["totals"]
    lines = {"source": f"{report['source']}, {report['state']}"}
    if excluded := report["excluded"]:
        lines["excluded"] = f"as {excluded['name']}: nothing is requested of it (see scrapy excluded)"
    lines["requests"] = (
        f"{totals['requests']} in the last {report['days']} days, {decimal(totals['bytes'])} received"
    )
    if peak := totals["peak"]:
        lines["from, to"] = f"{totals['first']}, {totals['last']}"
        lines["busiest second"] = f"{peak['requests']} at {peak['at']}; {peak['allowed']:g} were allowed"
        mean = "unknown" if totals["mean_rps"] is None else f"{totals['mean_rps']:g} requests a second"
        lines["mean"] = f"{mean} while there was work, {report['rate']['limit']:g} are allowed now"
        lines["results"] = _listed(totals["results"])
    if totals["not_sent"]:
        lines["not sent"] = _listed(totals["not_sent"])
    lines["left out"] = (
        f"{totals['refused_by_robots']} because of robots.txt, {totals['opt_outs_honoured']} because of opt-outs"
    )
    lines["trouble"] = (
        ", ".join(
            f"{name} {counted(totals[name], 'time')}"
            for name in ("slowed", "held", "opened", "halted")
            if totals[name]
        )
        or "none"
    )
    for one in report["robots"]:
        lines[f"robots.txt of {one['url']}"] = f"fetched {one['fetched'] or 'at a time unknown'}: {one['obeyed']}"
    return "\n".join(f"{name + ':':<16} {value}" for name, value in lines.items())


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items()) or "none"
