"""What a request costs Redis, of this checkout and of others, side by side.

    python -m benchmarks.redis_cpu [CHECKOUT ...] [--rounds N] [--requests N] [--rate N]

The calls of one worker on a Redis of its own, by each checkout's benchmarks/redis_calls.py. They take turns; a git
worktree of another version is one. For each: the CPU time of Redis, the commands that it ran (those within
functions included) and the round trips, all for one request, and what a lease call takes; medians of the rounds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from redis import Redis

from benchmarks.measure import redis_cpu
from benchmarks.ours import ROOT, options
from crawlproject.state import embedded

_CALLING = "fcall"
_LONGEST_S = 600.0
_SHOWN = 12  # commands


class Cost(NamedTuple):
    """What one request costs: Redis' CPU in microseconds, those in functions, commands by name.

    `lease` is what a lease call takes, from the call to its answer (ms).
    """

    cpu: float
    functions: float
    commands: Counter[str]
    lease: float


def cost(before: Any, after: Any, requests: int, lease: float) -> Cost:
    """Return the difference between two answers to INFO, for one of `requests`."""
    commands: Counter[str] = Counter()
    functions = 0.0
    for name in (name for name in after if name.startswith("cmdstat_")):
        plain = name.removeprefix("cmdstat_").partition("|")[0]
        calls, usec = (after[name][part] - before.get(name, {part: 0})[part] for part in ("calls", "usec"))
        commands[plain] += calls / requests
        functions += usec / requests * (plain == _CALLING)
    return Cost((redis_cpu(after) - redis_cpu(before)) * 1e6 / requests, functions, commands, lease)


def measure(checkout: Path, requests: int, rate: float) -> Cost:
    """Return what a request costs in a checkout."""
    with tempfile.TemporaryDirectory(prefix="redis-cpu-") as folder:
        url = embedded.ensure(Path(folder))
        try:
            with Redis.from_url(url) as client:
                before = client.info("everything")
                command = [sys.executable, "-m", "benchmarks.redis_calls", url, str(requests), str(rate)]
                done = subprocess.run(
                    command, cwd=checkout, check=True, timeout=_LONGEST_S, stdout=subprocess.PIPE
                )
                return cost(before, client.info("everything"), requests, float(done.stdout))
        finally:
            embedded.stop(Path(folder))


def table(costs: dict[Path, list[Cost]]) -> str:
    """Return the figures."""
    first = next(iter(costs.values()))[0].commands
    rows: list[tuple[str, Callable[[Cost], float]]] = [
        ("CPU of Redis, us", lambda one: one.cpu),
        ("in functions, us", lambda one: one.functions),
        ("round trips", lambda one: one.commands[_CALLING]),  # all but a few
        ("a lease call, ms", lambda one: one.lease),
        ("commands", lambda one: one.commands.total()),
        *((f"  {name}", lambda one, name=name: one.commands[name]) for name, _ in first.most_common(_SHOWN)),
    ]
    lines = [" " * 20 + "".join(f"{str(checkout)[-24:]:>26}" for checkout in costs)]
    for title, of in rows:
        values = (statistics.median(map(of, found)) for found in costs.values())
        lines.append(f"{title:20}" + "".join(f"{value:26.3f}" for value in values))
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = options("redis_cpu", __doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, help="others than this one, measured before it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=150.0, help="requests a second of all sources together")
    chosen = parser.parse_args()
    costs: dict[Path, list[Cost]] = {path.resolve(): [] for path in (*chosen.checkouts, ROOT)}
    for number in range(chosen.rounds):
        for checkout, found in costs.items():
            found.append(measure(checkout, chosen.requests, chosen.rate))
            print(f"round {number + 1}, {checkout}: {found[-1].cpu:.1f} us", file=sys.stderr)
    print(table(costs))


if __name__ == "__main__":
    main()
