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

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from warcio.archiveiterator import ArchiveIterator

from benchmarks.arrivals import Listener, links_of
from benchmarks.chaos import (
    CIRCUIT,
    SETTINGS,
    Account,
    Chaos,
    Plan,
    accounted,
    from_nothing,
    parser_of,
    wrong_files,
)
from benchmarks.name_server import Zone, served
from benchmarks.ours import Crawl
from crawlproject.sources.rates import MINIMUM_RATE

DELAY_S = 6.0  # between two pages of a domain; its rate alone allows one in 5 s
_IN_PROGRESS = 3000  # requests that wait in Redis


def plan_of(domains: int, random: int, pages: int, **more: Any) -> Plan:
    """Return the plan of a crawl of so many domains; the last tenth of their pages is crawled undisturbed."""
    rates = {f"d{number}.example": MINIMUM_RATE for number in range(domains)}
    ahead = _IN_PROGRESS / sum(rates.values())
    return Plan(
        domains, random, rates=rates, spider="pages", ahead=ahead, disturbed=9 * domains * pages // 10, **more
    )


def account(chaos: Chaos, pages: int, seconds: float) -> Account:
    """Look for the end of every page that was admitted."""
    keys, events = chaos.frontier.names, chaos.frontier.events()
    read, rot = events[keys.page_events], events[keys.link_rot_events]
    expected = set(first_pages(chaos))
    for event in read:
        parts = urlsplit(event["url"])
        number = int(parts.path.rpartition("/")[2])
        expected.update(urljoin(event["url"], link) for link in links_of(parts.hostname or "", number, pages))
    wrong = chain(
        (f"link rot of {one['url']}" for one in rot if "/gone/" not in one["url"]),
        wrong_files(chaos, events),
        _wrong_records(chaos.store, read),
    )
    return accounted(chaos, seconds, {"pages": read, "link rot": rot}, "url", expected, wrong)


def first_pages(chaos: Chaos) -> list[str]:
    """Return the page of each domain that a worker is told."""
    [port] = chaos.sites.ports
    return [f"http://{domain}:{port}/0" for domain in chaos.plan.rates]


def _wrong_records(store: Path, events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each event whose record is not where it says.

    A page that was fetched twice by one worker, because its first end was lost, has a `revisit` record the second
    time: it names the record that has its body.
    """
    places, responses = {}, {}
    for path in store.rglob("*.warc.gz*"):
        with path.open("rb") as file:
            archive = ArchiveIterator(file)
            for record in archive:
                body, headers = record.content_stream().read(), record.rec_headers
                at = archive.get_record_offset(), archive.get_record_length()
                places[str(path.relative_to(store)), *at] = headers, body
                if record.rec_type == "response":
                    responses[headers.get_header("WARC-Target-URI"), headers.get_header("WARC-Date")] = body
    for event in events:
        try:
            headers, body = places[tuple(event["record"][part] for part in ("warc", "offset", "length"))]
        except KeyError:
            yield f"there is no record of {event['url']} at {event['record']}"
            continue
        if headers.get_header("WARC-Type") == "revisit":
            first = (headers.get_header(f"WARC-Refers-To-{part}") for part in ("Target-URI", "Date"))
            body = responses.get(tuple(first), b"")
        parts = urlsplit(event["final_url"])
        text = f"<p>Page {parts.path.rpartition('/')[2]} of {parts.hostname}</p>".encode()
        if headers.get_header("WARC-Target-URI") != event["final_url"] or text not in body:
            yield f"the record of {event['url']} is of another page ({headers})"


def run(plan: Plan, pages: int, keep: Path | None = None) -> tuple[Account, float]:
    """Run a plan from nothing to nothing; return what came of it, and the shortest time between pages of a domain.

    Logs are left in `keep`, if it is given.
    """
    with ExitStack() as stack:
        names = stack.enter_context(served(Zone()))

        def crawl_in(folder: Path, url: str) -> Crawl:
            settings = SETTINGS | {
                "CRAWL_HEARTBEAT_TIMEOUT": plan.heartbeat_timeout,
                "CRAWL_DNS_SERVERS": names,
                "CRAWL_PAGES_DELAY": DELAY_S,
                "CRAWL_PAGES_STORE": folder / "pages",
            }
            sizes = dict.fromkeys(plan.rates, 0)
            rules = lambda domain: {"hosts": [domain], "circuit": CIRCUIT}  # noqa: E731
            return Crawl(folder / "crawl", sizes, settings, redis_url=url, more=rules)

        listeners = [Listener("127.0.0.1", None, pages=pages)]
        judge = lambda chaos, seconds: account(chaos, pages, seconds)  # noqa: E731
        result, report = from_nothing(plan, listeners, crawl_in, first_pages, judge, keep)
    gaps = (later - one for times in report["pictures"].values() for one, later in pairwise(times))
    return result, min(gaps, default=0.0)


def main() -> int:
    """Run it and print what came of it."""
    parser = parser_of("page_chaos", __doc__)
    parser.add_argument("--domains", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=4, help="of each domain")
    parser.add_argument(
        "--pause", nargs=2, type=float, default=Plan.pause, help="seconds between faults, from .. to"
    )
    parser.add_argument(
        "--heartbeat",
        type=float,
        default=Plan.heartbeat_timeout,
        help="seconds after which a silent worker lapses",
    )
    chosen = parser.parse_args()
    print(f"random {chosen.random}", flush=True)
    plan = plan_of(
        chosen.domains,
        chosen.random,
        chosen.pages,
        faults=chosen.only or (),
        pause=tuple(chosen.pause),
        heartbeat_timeout=chosen.heartbeat,
    )
    result, gap = run(plan, chosen.pages, chosen.keep)
    print(result.text(chosen.random))
    print(f"seconds over {len(result.too_fast)}; two pages of a domain at least {gap:.2f} s apart")
    return 1 if result.lost or result.doubled or result.broken or result.too_fast else 0


if __name__ == "__main__":
    sys.exit(main())
