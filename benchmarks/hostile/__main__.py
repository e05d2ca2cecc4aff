"""What strangers can send, tried against the project's own code: a table by kind, anyone can run it in minutes.

    python -m benchmarks.hostile [--only KIND ...] [--most N] [--mutations N] [--json]

Nothing is played: addresses go through the real guard and resolver (and a name server on loopback), robots.txt,
headers and codings through real workers over real servers, pictures through decoder processes, requests to a real
dashboard. A case has held when it ended as it must: refused, or as one event or dead letter, in bounded time and
memory, with nothing reached, changed or printed that must not be. What broke is listed, and the exit code is 1.
`--most` tries at most so many cases of each sort. Tests try redirects, names, files of seeds and terminals.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.hostile.addresses import addresses
from benchmarks.hostile.answers import content_codings, header_floods
from benchmarks.hostile.dashboard import dashboard_requests
from benchmarks.hostile.pictures import pictures
from benchmarks.hostile.robots import robots_bombs
from benchmarks.hostile.room import Room, Tally
from benchmarks.ours import options

KINDS: dict[str, Callable[[Room], Tally]] = {
    "addresses": addresses,
    "robots": robots_bombs,
    "headers": header_floods,
    "codings": content_codings,
    "pictures": pictures,
    "dashboard": dashboard_requests,
}
_SHOWN = 20  # of what broke, of each kind


def main() -> None:
    """Try, and print the table."""
    parser = options("hostile", __doc__)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--most", type=int, default=0, help="cases of each sort at most")
    parser.add_argument("--mutations", type=int, default=3_000, help="of pictures")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    logging.disable()  # the scripts name what they are given, a thousand times
    tallies = []
    if not arguments.json:
        print(f"{'kind':<20} {'tried':>6} {'held':>6} {'broken':>6} {'seconds':>7}")
    for kind in arguments.only:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="crawl-hostile-") as folder:
            tally = KINDS[kind](Room(Path(folder), arguments.most, arguments.mutations))
        seconds = time.monotonic() - began
        tallies.append({**vars(tally), "held": tally.tried - len(tally.broken), "seconds": round(seconds, 1)})
        if arguments.json:
            continue
        counts = f"{tally.tried:6} {tally.tried - len(tally.broken):6} {len(tally.broken):6} {seconds:7.0f}"
        print(f"{tally.kind:<20} {counts}  {'; '.join(tally.notes)}".rstrip())
        for line in tally.broken[:_SHOWN]:
            print(f"    {line}")
        sys.stdout.flush()
    if arguments.json:
        print(json.dumps(tallies, indent=1))
    else:
        tried, broken = sum(one["tried"] for one in tallies), sum(len(one["broken"]) for one in tallies)
        print(f"{'all':<20} {tried:6} {tried - broken:6} {broken:6}")
    if any(one["broken"] for one in tallies):
        sys.exit(1)


if __name__ == "__main__":
    main()
