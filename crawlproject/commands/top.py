"""`scrapy top`: the crawl, live in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.program import as_called
from crawlproject.screen import stdout_console, table
from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.state.health import fault_of, plain
from crawlproject.status.sample import Survey
from crawlproject.status.snapshot import Snapshot
from crawlproject.status.source_status import digits, duration, said_of_minimum
from crawlproject.texts import one_line, printable

if TYPE_CHECKING:
    from rich.console import Console, Group

_NEEDS = {"reason": 110, "limit": 90, "eta": 70}  # the width of a terminal below which these are left out
_TEXTS = frozenset({"source", "state", "reason"})
_SOON_S = 1.0  # between the first two samples, and between two attempts while Redis fails
_ALARM = "bold red"
_STYLES = ("", "yellow", "yellow", _ALARM)  # by how much a source is in trouble
_RESULTS = ("success_rps", "error_rps", "link_rot_rps")
_LINES = """{title}  {time} UTC, over {over:.3g} s
{processing_rate} results/s  ok {success_rps}  errors {error_rps}  limit {global_max_rps}  {megabytes} MB/s
workers {workers}  sources {sources}  halted {halted}  ETA {eta}
{outstanding} outstanding  {in_flight} in flight  {seeds_waiting} waiting  {dead} dead letters  {excluded} excluded
"""


class Command(cli.Command):
    """Show the rates and totals of the whole crawl and the status of each source, those in trouble first, then
    the fastest, until Ctrl-C. It only reads: run as many as you like. Without a terminal, it prints one table.
    With SOURCE, it lists only those.
    """

    arguments = "[options] [SOURCE...]"
    examples = ("scrapy top", "scrapy top --once", "scrapy top --json museum")
    json_help = "print one monitoring_update (docs/events.md) and exit"
    spider_help = "the spider whose work to show"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--once", action="store_true", help="print one table and exit")
        rates = "seconds over which rates are measured, from 0.5 to 3600 (default: 2)"
        parser.add_argument("--interval", type=float, default=2.0, metavar="S", help=rates)

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if not 0.5 <= opts.interval <= 3600:
            raise UsageError(f"--interval {opts.interval:g} must be a number of seconds from 0.5 to 3600")
        asyncio.run(self._run(cli.source_names(args), opts))

    async def _run(self, names: list[str], opts: argparse.Namespace) -> None:
        async with cli.opened_state(self, opts.spider) as state:
            if names:
                await cli.remark_unknown(state, names)
            reader = Survey(state, names)
            if opts.json:
                print(one_line((await reader.look_for(opts.interval)).as_event()))
                return
            console, title = stdout_console(), f"{opts.spider} of {state.config.namespace}"
            if console.is_terminal and not opts.once and not console.is_dumb_terminal:
                await _watch(reader, title, opts.interval, console)
            else:
                console.print(view(title, await reader.look_for(opts.interval), width=console.width))


async def _watch(reader: Survey, title: str, interval: float, console: Console) -> None:
    """Show a sample every `interval` seconds until Ctrl-C, SIGTERM or SIGHUP; while Redis fails, the last one."""
    from rich.live import Live

    watching, made = asyncio.current_task(), None
    assert watching is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, watching.cancel)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # a stopped process would leave its screen behind
    live = Live(view(title, None), console=console, screen=True, refresh_per_second=2)
    with live, suppress(asyncio.CancelledError):
        while not watching.cancelling():  # redis-py can swallow a cancellation on Python 3.11
            try:
                made, fault = await reader.look() or made, ""
            except REDIS_TROUBLE as error:
                fault = f"{fault_of(error)} ({plain(error)})"
            live.update(view(title, made, fault, console.height, console.width))
            await asyncio.sleep(_SOON_S if fault or made is None else interval)


def view(title: str, shown: Snapshot | None, fault: str = "", most: int = 10**6, width: int = 2000) -> Group:
    """Return a snapshot as rich renders it: how the crawl is, and a row for each source, in `most` lines.

    `fault` says why there is no newer one. A narrow `width` has fewer columns, and cuts names. Texts go through
    `printable` and into rich's `Text`, which reads no markup: names come from strangers.
    """
    from rich.console import Group
    from rich.text import Text

    def line(text: str, style: str = "") -> Text:
        return Text(printable(text, 500), style, no_wrap=not style, overflow="ellipsis")

    if shown is None:
        return Group(line(f"{title}  reading ..."), line(fault, _ALARM))
    general, lost = shown.general, shown.general["overflow_lost"]
    alarms = [fault, general["paused"] and f"NOTHING GOES OUT: {general['paused']}"]
    alarms += [f"SHARD {number}: {reason}" for number, reason in general["shards_stopped"].items()]
    alarms = list(map(as_called, filter(None, [*alarms, lost and f"LOST {lost} requests"])))
    told = {name: digits(value) if isinstance(value, float) else value for name, value in general.items()}
    told |= {"megabytes": digits(general["bytes_per_s"] / 1e6), "eta": duration(general["eta_s"])}
    told |= {"title": title, "time": shown.time[11:19], "halted": len(general["circuit_breaker_tripped"])}
    remark = said_of_minimum(shown.sample.sources.values())
    lines = [*_LINES.format(**told, over=shown.interval_s).splitlines(), *([remark] if remark else [])]
    seen = {name: sum(one[rate] or 0.0 for rate in _RESULTS) for name, one in shown.specific.items()}
    listed = sorted((-one["trouble"], -seen[name], -one["work"], name) for name, one in shown.specific.items())
    kept = {name: shown.specific[name] for *_, name in listed[: max(most - len(lines) - len(alarms) - 2, 0)]}
    left_out = {head for head, least in _NEEDS.items() if width < least}
    left_out |= {"items"} if shown.sample.spider in {"images", "pages"} else set()
    whole = (_cells(name, one, seen[name]).items() for name, one in kept.items())
    rows = [{head: cell for head, cell in row if head not in left_out} for row in whole]
    made = table(rows, _TEXTS, {"state"}, [_STYLES[one["trouble"]] for one in kept.values()])
    more = max(general["sources_listed"], len(listed)) - len(kept)
    last = [line(f"and {more} more")] if more else []
    return Group(*map(line, lines), *(line(alarm, _ALARM) for alarm in alarms), made, *last)


def _cells(name: str, source: Mapping[str, Any], seen: float) -> dict[str, str]:
    """Return the columns of a source that has `seen` results a second, good and bad."""
    state = source["state"].replace("_", " ")
    return {
        "source": printable(name, 500),
        "state": state.upper() if state != "closed" else "slowed" if source["trouble"] else state,
        "limit": digits(source["rate_limit"]),
        "allowed": digits(source["effective_rate"]),
        "seen": digits(None if source["success_rps"] is None else seen),
        "queued": str(source["queued"] + source["waiting"]),
        "in flight": str(source["in_flight"]),
        "done": str(source["successful"]),
        "items": str(source["items"]),
        "failed": str(source["failed"]),
        "eta": duration(source["eta_s"]),
        "reason": printable(source["reason"], 500),
    }
