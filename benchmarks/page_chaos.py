"""Does every page that is admitted end in exactly one way, whatever fails meanwhile?

    python -m benchmarks.page_chaos [--domains N] [--pages N] [--pause S S] [--heartbeat S] [--random N]
        [--only FAULT ...] [--keep DIR]

As benchmarks/chaos.py, with its faults, for `scrapy crawl pages`: 10,000 domains of four pages each, of which a
worker is told the first, three workers, a content store, Redis with `appendfsync always`, and a fault every few
seconds. In the end each page that a page's event leads to is looked for in the events, the link rot and the dead
letters, and the record of each event in the store. Ends with 1 when one of them was lost or has more than one end,
a domain saw more requests in a second than its rate allows, or anything else is not as promised. On a machine that
starts its workers slowly faults must come less often (`--pause`), or nothing else happens.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from warcio.archiveiterator import ArchiveIterator

from benchmarks.arrivals import Listener, Sites, links_of
from benchmarks.chaos import CIRCUIT, FAULTS, SETTINGS, Account, Chaos, Plan, too_fast, wrong_files
from benchmarks.chaos_redis import Frontier
from benchmarks.name_server import Zone, served
from benchmarks.ours import Crawl
from crawlproject.sources.rates import MINIMUM_RATE
from demo.redis_servers import Server

DELAY_S = 6.0  # between two pages of a domain; its rate alone allows one in 5 s
_HEADER = re.compile(rb"(?m)^([\w-]+): ([^\r\n]*)\r?$")  # of a WARC record
_IN_PROGRESS = 3000  # requests that wait in Redis


def plan_of(domains: int, random: int, pages: int, **more: Any) -> Plan:
    """Return the plan of a crawl of so many domains; the last tenth of their pages is crawled undisturbed."""
    rates = {f"d{number}.example": MINIMUM_RATE for number in range(domains)}
    ahead = _IN_PROGRESS / sum(rates.values())
    return Plan(
        domains, random, rates=rates, spider="pages", ahead=ahead, disturbed=9 * domains * pages // 10, **more
    )


def account(chaos: Chaos, port: int, pages: int, seconds: float) -> Account:
    """Look for the end of every page that was admitted."""
    keys, events = chaos.frontier.names, chaos.frontier.events()
    read, rot, dead = events[keys.page_events], events[keys.link_rot_events], chaos.crawl.dead_letters("pages")
    expected = {f"http://{domain}:{port}/0" for domain in chaos.plan.rates}
    for event in read:
        parts = urlsplit(event["url"])
        number = int(parts.path.rpartition("/")[2])
        expected.update(urljoin(event["url"], link) for link in links_of(parts.hostname or "", number, pages))
    ends = Counter(end["url"] for end in (*read, *rot, *dead))
    reasons = Counter("dead: " + re.split(r"[:,(]", letter["reason"])[0].strip() for letter in dead)
    return Account(
        chaos.plan.seeds,
        seconds,
        chaos.faults,
        {"pages": len(read), "link rot": len(rot)} | dict(reasons.most_common()),
        sorted(expected - ends.keys()),
        sorted(url for url, number in ends.items() if number > 1),
        chaos.broken
        + [f"{url} was never to be asked for" for url in ends.keys() - expected]
        + [f"link rot of {one['url']}" for one in rot if "/gone/" not in one["url"]]
        + list(chaos.frontier.left_behind())
        + list(wrong_files(chaos, events))
        + list(_wrong_records(chaos.store, read)),
        [],
        chaos.crawl.totals("pages"),
    )


def _wrong_records(store: Path, events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each event whose record is not where it says.

    A page that was fetched twice by one worker, because its first end was lost, has a `revisit` record the second
    time: it names the record that has its body.
    """
    again = 0
    for event in events:
        try:
            with (store / event["record"]["warc"]).open("rb") as file:
                file.seek(event["record"]["offset"])
                record = gzip.decompress(file.read(event["record"]["length"]))
        except (OSError, EOFError) as error:
            yield f"the record of {event['url']}: {error}"
            continue
        named = dict(_HEADER.findall(record.partition(b"\r\n\r\n")[0]))
        if named.get(b"WARC-Type") == b"revisit":
            again += 1
            url, date = named.get(b"WARC-Refers-To-Target-URI", b""), named.get(b"WARC-Refers-To-Date", b"")
            record = _responses(store).get((url, date), b"")
        parts = urlsplit(event["final_url"])
        text = f"<p>Page {parts.path.rpartition('/')[2]} of {parts.hostname}</p>".encode()
        if named.get(b"WARC-Target-URI") != event["final_url"].encode() or text not in record:
            yield f"the record of {event['url']} is of another page ({named})"
    print(f"{again} records name an earlier one, which has the body", flush=True)


@functools.cache
def _responses(store: Path) -> Mapping[tuple[bytes, bytes], bytes]:
    """Return what the store's records of responses have, by address and date."""
    found = {}
    for path in store.rglob("*.warc.gz*"):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                if record.rec_type == "response":
                    names = ("WARC-Target-URI", "WARC-Date")
                    url, date = (record.rec_headers.get_header(name).encode() for name in names)
                    found[url, date] = record.content_stream().read()
    return found


def run(plan: Plan, pages: int, keep: Path | None = None) -> tuple[Account, float]:
    """Run a plan from nothing to nothing; return what came of it, and the shortest time between pages of a domain.

    Logs are left in `keep`, if it is given.
    """
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, ExitStack() as started:
        store = Path(folder) / "pages"
        settings = SETTINGS | {
            "CRAWL_HEARTBEAT_TIMEOUT": plan.heartbeat_timeout,
            "CRAWL_DNS_SERVERS": started.enter_context(served(Zone())),
            "CRAWL_PAGES_DELAY": DELAY_S,
            "CRAWL_PAGES_STORE": store,
        }
        server = started.enter_context(closing(Server(Path(folder), appendfsync="always")))
        sites = started.enter_context(Sites([Listener("127.0.0.1", None, pages=pages)]))
        crawl = started.enter_context(
            Crawl(
                Path(folder) / "crawl",
                dict.fromkeys(plan.rates, 0),
                settings,
                redis_url=server.url,
                more=lambda domain: {"hosts": [domain], "circuit": CIRCUIT},
            )
        )
        [port] = sites.ports
        chaos = Chaos(plan, crawl, sites, started.enter_context(Frontier(server.url, plan.spider)), server)
        chaos.store = store
        try:
            seconds = chaos.run([f"http://{domain}:{port}/0" for domain in plan.rates])
            result = account(chaos, port, pages, seconds)
        finally:
            if keep is not None:
                shutil.copytree(crawl.home, keep, ignore=shutil.ignore_patterns("redis", "thumbnails"))
    result.too_fast += too_fast(chaos, sites.report)
    gaps = (later - one for times in sites.report["pictures"].values() for one, later in pairwise(times))
    return result, min(gaps, default=0.0)


def main() -> int:
    """Run it and print what came of it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.page_chaos", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--domains", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=4, help="of each domain")
    parser.add_argument("--random", type=int, help="the number that a former run has printed, to try it again")
    parser.add_argument("--only", nargs="+", choices=FAULTS, metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument(
        "--pause", nargs=2, type=float, default=Plan.pause, metavar="SECONDS", help="between faults, from .. to"
    )
    parser.add_argument(
        "--heartbeat",
        type=float,
        default=Plan.heartbeat_timeout,
        metavar="SECONDS",
        help="after which a silent worker lapses",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the logs in DIR, which must be new")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # not without clearing up
    random = options.random if options.random is not None else int.from_bytes(os.urandom(3))
    print(f"random {random}", flush=True)
    plan = plan_of(
        options.domains,
        random,
        options.pages,
        faults=options.only or (),
        pause=tuple(options.pause),
        heartbeat_timeout=options.heartbeat,
    )
    result, gap = run(plan, options.pages, options.keep)
    print(result.text(random))
    print(f"seconds over {len(result.too_fast)}; two pages of a domain at least {gap:.2f} s apart")
    return 1 if result.lost or result.doubled or result.broken or result.too_fast else 0


if __name__ == "__main__":
    sys.exit(main())
