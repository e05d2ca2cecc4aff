"""Does every source get requests at its rate, and never above, whatever happens to the crawl?

    python -m benchmarks.politeness [--only NAME ...] [--keep DIR]

Each scenario is a whole crawl: workers as processes, a Redis of its own, and web sites (arrivals.py) that note
every arrival; most of them disturb it halfway. The judge looks at the arrivals alone, and makes two judgements:

- Violations must never happen, on any machine (the tests judge these, too): a sliding second with more than
  `1.1 x rate + 1` requests, a mean above the rate, a request while nobody led or to a halted source, a seed that
  did not end as an image, once (of a halted source: that does not wait any more), a report of a source (`scrapy
  report`) that does not agree with what arrived there.
- Shortfalls are parts of a rate that were not used: a mean below 97 % of it while there was work, a source that
  got no request soon after an outage. Other load on the machine causes them, too.

Ends with 1 if there are any of either.

The mean is taken from a source's first arrival to its last (there is work for it all the time in between),
outages that the scenario names left out; the bound holds in those, too. All takes half an hour.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from benchmarks.arrivals import Listener, Report, Sites, allowed, seconds_from
from benchmarks.name_server import Zone, served
from benchmarks.ours import ROOT, Crawl, issue_certificate, options, size_for, until
from benchmarks.politeness_scenarios import (
    KEYS,
    SECOND,
    STAY,
    WANTED_USE,
    Outage,
    Run,
    Scenario,
    Source,
    scenarios,
)
from benchmarks.set_clock import Clocks
from crawlproject import config, plugins
from crawlproject.state.client import State
from crawlproject.state.keys import Keys
from crawlproject.state.source_counts import counts_in

OTHERS_SHARE = 0.05  # of a source's rate, at most, goes to requests for the robots.txt of others while it has work
HIGHEST_USE = 1.05  # of the mean; the first slots may be used later than the last
_START_S = 60.0  # for workers to start
_AFTERWARDS_S = 0.5  # in which an end too many would show
_FEED_S = 60.0  # for scrapy feed, which full queues of others must not hold back
_SEEDS_S = 120.0  # for all seeds to end, beyond twice the scenario's length; robots.txt may be put off for 60
_END_S = 60.0  # for a worker to stop


# The judge


@dataclass(frozen=True)
class Figures:
    """What was seen of a source, or of several alike: `gaps` from one request to the next took `span` seconds."""

    source: str
    rate: float
    requests: int
    gaps: int
    span: float
    worst: int
    seconds_over: int
    wanted: float = WANTED_USE  # least share of the rate to be used

    @property
    def mean(self) -> float:
        """Requests a second while there was work."""
        return self.gaps / self.span if self.span else 0.0

    @property
    def use(self) -> float:
        """Share of the rate that was used while there was work."""
        return self.mean / self.rate

    def merged(self, other: Figures) -> Figures:
        """Return the figures of both; mean and use are those of one source of them."""
        return replace(
            self,
            requests=self.requests + other.requests,
            gaps=self.gaps + other.gaps,
            span=self.span + other.span,
            worst=max(self.worst, other.worst),
            seconds_over=self.seconds_over + other.seconds_over,
        )


def judge(
    source: str,
    rate: float,
    times: Sequence[float],
    outages: Iterable[Outage] = (),
    lapses: Sequence[tuple[float, float]] = (),
) -> Figures:
    """Return the figures of a source of `rate` whose requests arrived at `times`, in order; see `seconds_from`."""
    stretches = [list(times)]
    for outage in sorted(outages, key=lambda outage: outage.begin):
        last = stretches.pop()
        stretches.append([moment for moment in last if moment < outage.begin])
        stretches.append([moment for moment in last if moment >= outage.end])
    counts = seconds_from(times, lapses)
    return Figures(
        source,
        rate,
        len(times),
        sum(len(stretch) - 1 for stretch in stretches if stretch),
        sum(stretch[-1] - stretch[0] for stretch in stretches if stretch),
        max(counts, default=0),
        sum(count > allowed(rate) for count in counts),
    )


def silent_too_long(source: Source, times: Sequence[float], outages: Iterable[Outage]) -> Iterator[str]:
    """Yield a sentence for each outage after which `source` got its next request too late."""
    for outage in outages:
        again = next((moment for moment in times if moment >= outage.end), outage.end)
        if again > outage.end + outage.patience + 1 / source.rate:
            yield f"{source.name}: no request for {again - outage.end:.1f} s after the outage"


# Running them


@dataclass
class Result:
    """What came of a scenario: figures by source, what was broken, how late the sites noted arrivals at most."""

    scenario: str
    figures: list[Figures]
    broken: list[str]
    late: float
    missed: int = 0  # send slots, by what the workers that closed have logged
    resumed_late: list[str] = field(default_factory=list)
    wanted_use: float = WANTED_USE
    hanging: frozenset[str] = frozenset()  # rows whose use is not judged

    def violations(self) -> list[str]:
        """Return what must never happen, however busy the machine."""
        found = list(self.broken)
        for one in self.figures:
            if one.seconds_over:
                found.append(
                    f"{one.source}: {one.worst} requests in a second, allowed are {allowed(one.rate):g};"
                    f" {one.seconds_over} sliding seconds are over"
                )
            if one.use > HIGHEST_USE:
                found.append(f"{one.source}: the mean is {one.use:.1%} of the rate")
        return found

    def shortfalls(self) -> list[str]:
        """Return where rates were not used: a fault of the crawl only if nothing else kept the machine busy."""
        return self.resumed_late + [
            f"{one.source}: the mean is {one.use:.1%} of the rate"
            for one in self.figures
            if one.use < min(one.wanted, self.wanted_use) and one.source not in self.hanging
        ]


def run(scenario: Scenario, keep: Path | None = None) -> Result:
    """Run a scenario from nothing to nothing; logs and arrivals are left in `keep`, if it is given."""
    listeners = list(dict.fromkeys(source.listener for source in scenario.sources))
    with tempfile.TemporaryDirectory(prefix="politeness-") as folder, ExitStack() as stack:
        certificate, authority = issue_certificate(Path(folder), {source.host for source in scenario.sources})
        sites = stack.enter_context(Sites(listeners, certificate))
        ports = {
            listener: f"{listener.host}:{port}" for listener, port in zip(listeners, sites.ports, strict=True)
        }
        settings = {**STAY, "SSL_CERT_FILE": authority, **scenario.settings}
        if silent := [source.host for source in scenario.sources if source.hangs == "name"]:
            zone = Zone()
            zone.records = {name: [None] for name in silent}
            settings["CRAWL_DNS_SERVERS"] = stack.enter_context(served(zone))
        clocks = Clocks(Path(folder)) if scenario.sets_clocks or scenario.skew_hours else None
        with clocks.inherited("redis") if clocks else nullcontext():
            sizes = {source.name: size_for(source.rate) for source in scenario.sources}
            rules = {source.name: rules_of(source) for source in scenario.sources}
            crawl = stack.enter_context(Crawl(Path(folder) / "crawl", sizes, settings, more=rules.__getitem__))
        if halted := [source.name for source in scenario.sources if source.halted]:
            crawl.redis.sadd(KEYS.halted, *halted)
        workers = stack.enter_context(started_workers(crawl, scenario, clocks))
        seeds = seeds_of(scenario, ports)
        if halted:
            listed = crawl.home / "seeds.jsonl"
            listed.write_text("\n".join(seeds))
            crawl.scrapy("feed", str(listed), patience=_FEED_S)
        else:
            for number in range(0, len(seeds), 1000):
                for keys, part in shared_out(scenario, seeds[number : number + 1000]):
                    crawl.redis.lpush(keys.seeds, *part)
        until("an image is done", _START_S, lambda: crawl.redis.xlen(KEYS.image_events))
        going = Run(crawl, workers, scenario.seconds, clocks)
        if scenario.disturb is not None:
            scenario.disturb(going)
        hanging = {source.name for source in scenario.sources if source.hangs}
        held = held_back(crawl, scenario)
        waited_for = {name: count for name, count in seeds_by_source(scenario).items() if name not in hanging}
        have_ended = (
            partial(_have_ended, crawl, waited_for)
            if hanging
            else partial(_all_have_ended, crawl, len(seeds) - held)
        )
        broken = finish(workers, have_ended, 2 * scenario.seconds + _SEEDS_S)
        broken += account(crawl, len(seeds), held, with_rest=bool(hanging))
        reports = asyncio.run(read_reports(crawl, [source.name for source in scenario.sources]))
        logs = {log.name: log.read_text() for log in sorted(crawl.home.glob("worker-*.log"))}
        if keep is not None:
            crawl.keep_in(keep / scenario.name)
    for name, told in reports.items():
        broken += disagreements(name, told, sites.report, losses=scenario.losses)
    if keep is not None:
        (keep / scenario.name / "reports.json").write_text(json.dumps(reports))
        (keep / scenario.name / "arrivals.json").write_text(json.dumps(sites.report["arrivals"]))
    missed = sum(
        map(int, re.findall(r"'(?:frontier/slots_missed|tokens/returned)': (\d+)", "".join(logs.values())))
    )
    if broken:
        for name, log in logs.items():
            print(f"{name}:", *log.splitlines()[-8:], sep="\n    ", file=sys.stderr)
    result = assess(scenario, going, sites.report, broken)
    return replace(result, missed=missed, resumed_late=result.resumed_late + going.unequal)


def rules_of(source: Source) -> dict[str, object]:
    """Return what the catalogue says of a source beside its size."""
    if source.robots is None and source.hangs in {"", "answer"}:
        return {"robots": "ignore", "hosts": [source.host]}  # permission is for the hosts in a row
    return {"hosts": [] if source.host == "127.0.0.1" else [source.host]}


def seeds_of(scenario: Scenario, ports: Mapping[Listener, str]) -> list[str]:
    """Return the seeds, so mixed that all sources have work from the beginning to the end."""
    authorities = {listener.source: authority for listener, authority in ports.items() if listener.source}
    schemes = {source.name: "http" if source.handshake is None else "https" for source in scenario.sources}
    counts = seeds_by_source(scenario)
    found: list[tuple[float, str]] = []
    for source in scenario.sources:
        count = counts[source.name]
        base = source.host if source.hangs == "name" else ports[source.listener]
        if source.listener.source is None:
            base += f"/{source.name}"
        base += "".join(f"/redirect/{authorities[name]}" for name in source.redirects)
        for number in range(count):
            url = f"{schemes[source.name]}://{base}/{source.name}/{number}"
            seed = {"url": url, "uuid": f"{source.name}-{number}", "source": source.name}
            found.append((number / count - source.halted, json.dumps(seed)))
    return [seed for _, seed in sorted(found)]


def shared_out(scenario: Scenario, seeds: Sequence[str]) -> list[tuple[Keys, list[str]]]:
    """Return the seeds of each spider: with two of them every other one of each source."""
    if not scenario.second:
        return [(KEYS, list(seeds))]
    parts: tuple[list[str], list[str]] = ([], [])
    for seed in seeds:
        parts[int(json.loads(seed)["uuid"].rpartition("-")[2]) % 2].append(seed)
    return list(zip((KEYS, SECOND), parts, strict=True))


def seeds_by_source(scenario: Scenario) -> dict[str, int]:
    """Return how many seeds each source has."""
    return {
        source.name: round(source.rate * scenario.seconds) if source.requests is None else source.requests
        for source in scenario.sources
    }


def held_back(crawl: Crawl, scenario: Scenario) -> int:
    """Return how many seeds are of sources that are still halted as the scenario has halted them."""
    halted = cast("set[bytes]", crawl.redis.smembers(KEYS.halted))
    return sum(
        source.requests or 0 for source in scenario.sources if source.halted and source.name.encode() in halted
    )


@contextmanager
def started_workers(
    crawl: Crawl, scenario: Scenario, clocks: Clocks | None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the workers; yield their processes when all are registered and led, and kill them in the end."""
    processes: list[subprocess.Popen[bytes]] = []
    redis: Any = crawl.redis

    def ready() -> bool:
        registered = (redis.zcard(keys.workers) for keys in (KEYS, SECOND))
        wanted = (scenario.workers - scenario.second, scenario.second)
        return tuple(registered) == wanted and bool(redis.exists(KEYS.pulse))

    try:
        for number in range(scenario.workers):
            environ = crawl.environment
            if clocks is not None:
                environ |= clocks.environment(f"worker-{number}")
            if clocks is not None and scenario.skew_hours:
                clocks.move(f"worker-{number}", wall=scenario.skew_hours[number] * 3600)
            command = crawl.worker_command(number, "second" if number < scenario.second else "images")
            processes.append(subprocess.Popen(command, cwd=ROOT, env=environ))
        until("all workers are there", _START_S, ready)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _all_have_ended(crawl: Crawl, seeds: int) -> bool:
    redis: Any = crawl.redis
    return bool(sum(redis.xlen(stream) for stream in (*KEYS.streams, KEYS.dead)) >= seeds)


def _have_ended(crawl: Crawl, seeds: Mapping[str, int]) -> bool:
    """Whether so many seeds of each source have ended."""
    redis: Any = crawl.redis
    counts = map(counts_in, redis.hmget(KEYS.counts, *seeds))
    ended = (sum(of.get(end, 0) for end in ("thumbnails", "link_rot", "failed")) for of in counts)
    return all(many >= count for many, count in zip(ended, seeds.values(), strict=True))


def finish(
    workers: Iterable[subprocess.Popen[bytes]], have_ended: Callable[[], bool], patience: float
) -> list[str]:
    """Wait until the seeds have ended, and stop the workers; return what went wrong."""
    try:
        until("all seeds have ended", patience, have_ended)
        time.sleep(_AFTERWARDS_S)
    except TimeoutError as error:
        broken = [str(error)]
    else:
        broken = []
    for worker in workers:
        worker.terminate()
    for number, worker in enumerate(workers):
        try:
            status = worker.wait(_END_S)
        except subprocess.TimeoutExpired:
            broken.append(f"worker {number} does not stop")
        else:
            if status not in {0, -signal.SIGKILL}:
                broken.append(f"worker {number} ended with status {status}")
    return broken


def account(crawl: Crawl, seeds: int, held: int, *, with_rest: bool) -> list[str]:
    """Return what is wrong with the ends of the seeds: those not `held` back shall have become images, once.

    `with_rest`: or they are still there, or dead letters.
    """
    redis: Any = crawl.redis
    ends = {name: redis.xlen(key) for name, key in (("images", KEYS.image_events), ("dead letters", KEYS.dead))}
    ends["link rot"] = redis.xlen(KEYS.link_rot_events)
    ends["outstanding"] = sum(int(n or 0) for n in redis.hmget(KEYS.counters, "outstanding", "overflow"))
    ends["seeds not read"] = redis.llen(KEYS.seeds)
    as_wanted = ends == dict.fromkeys(ends, 0) | {"images": seeds - held, "outstanding": held}
    if sum(ends.values()) == seeds if with_rest else as_wanted:
        return []
    return [f"{seeds} seeds, {held} held back: " + ", ".join(f"{count} {name}" for name, count in ends.items())]


async def read_reports(crawl: Crawl, sources: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the report of each source, as `scrapy report --json` has it; none where that plug-in was deleted."""
    if "report" not in plugins.found():
        return {}
    site_report = import_module("crawlproject.contrib.report.site_report").site_report
    state = State(config.load({"REDIS_URL": crawl.redis_url}), "images")
    await state.open()
    try:
        return {source: await site_report(state, source) for source in sources}
    finally:
        await state.close()


def disagreements(source: str, told: Mapping[str, Any], report: Report, *, losses: bool = False) -> list[str]:
    """Return where a report of a source says other things than its site has seen.

    With `losses` some requests may be missing in it.
    """
    times, totals = report["arrivals"].get(source, []), told["totals"]
    if losses:
        more = totals["requests"] > len(times)
        return [f"{source}: {totals['requests']} requests by the report, {len(times)} by the site"] * more
    pairs = {
        "requests": (totals["requests"], len(times)),
        "bytes": (totals["bytes"], report["bytes"].get(source, 0)),
        "results": (totals["results"], report["statuses"].get(source, {})),
    }
    return [
        f"{source}: {theirs} {what} by the report, {seen} by the site"
        for what, (theirs, seen) in pairs.items()
        if theirs != seen
    ]


def assess(scenario: Scenario, going: Run, report: Report, broken: list[str]) -> Result:
    """Judge the arrivals of all sources."""
    arrivals = report["arrivals"]
    rows: dict[str, Figures] = {}
    resumed_late: list[str] = []
    for source in scenario.sources:
        times = arrivals.get(source.name, [])
        if source.halted:
            if early := sum(moment < going.resumed_at for moment in times):
                broken.append(f"{source.name}: {early} requests while it was halted")
            if not times:
                continue
        outages = [outage for outage in going.outages if outage.source in {None, source.name}]
        for row, rate, begin, end in going.rates_of(source):
            times_at_rate = [moment for moment in times if begin <= moment < end]
            figures = judge(row, rate, times_at_rate, outages, report["lapses"])
            if source.visited or source.may_wait:
                figures = replace(figures, wanted=0.0)
            rows[row] = rows[row].merged(figures) if row in rows else figures
        if source.visited:
            row = f"{source.name}, images"
            own = judge(row, source.rate, report["pictures"].get(source.name, []), outages, report["lapses"])
            rows[row] = replace(own, wanted=WANTED_USE * (1 - OTHERS_SHARE))
        resumed_late += silent_too_long(source, times, outages)
    for begin, end in going.silences:
        if unled := sum(begin < moment < end for times in arrivals.values() for moment in times):
            broken.append(f"{unled} requests while nobody led")
    if strays := arrivals.keys() - {source.name for source in scenario.sources}:
        broken.append(f"requests that no source has paid for: {', '.join(sorted(strays))}")
    return Result(
        scenario.name,
        list(rows.values()),
        broken,
        report["late"],
        resumed_late=resumed_late,
        wanted_use=scenario.wanted_use,
        hanging=frozenset(source.group or source.name for source in scenario.sources if source.hangs),
    )


def table(result: Result) -> str:
    """Return the figures of a scenario as lines of text."""
    lines = [
        f"\n{result.scenario}: {result.missed} slots missed, the sites late by {result.late * 1000:.0f} ms at most"
    ]
    lines.append(
        f"{'source':16}{'rate':>8}{'requests':>10}{'mean':>9}{'use':>8}{'worst s':>9}{'allowed':>9}{'over':>6}"
    )
    lines += [
        f"{one.source:16}{one.rate:8.1f}{one.requests:10}{one.mean:9.3f}{one.use:8.1%}{one.worst:9}"
        f"{allowed(one.rate):9.2f}{one.seconds_over:6}"
        for one in result.figures
    ]
    lines += [f"BROKEN: {violation}" for violation in result.violations()]
    return "\n".join(lines + [f"SHORT: {shortfall}" for shortfall in result.shortfalls()])


def main() -> int:
    """Run the scenarios requested and print what came of them."""
    everything = {scenario.name: scenario for scenario in scenarios()}
    chosen = options("politeness", __doc__, everything).parse_args()
    results = []
    for name in chosen.only or everything:
        try:
            result = run(everything[name], chosen.keep)
        except (TimeoutError, OSError, subprocess.SubprocessError) as error:
            result = Result(name, [], [str(error)], 0.0)
        results.append(result)
        print(table(result), flush=True)
    return 1 if any(result.violations() or result.shortfalls() for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
