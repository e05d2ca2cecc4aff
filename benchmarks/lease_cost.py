"""What a lease costs Redis, with few and with a million sources, in one class and in five; of several checkouts.

    python -m benchmarks.lease_cost [CHECKOUT ...] [--sources N ...] [--classes N ...] [--batches N]

Runs lease_calls.py with this checkout and with the others, each on a Redis of its own; all are filled first, then
they take turns, so that other work on the machine slows all alike. A git worktree of an older version is a
checkout. Prints the CPU time of Redis for one of the 64 leases of a call (µs), the median of the batches, and the
median of its ratio to that of the first checkout in the same turn.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from crawlproject.state import embedded

_CALLS = Path(__file__).with_name("lease_calls.py")
_HERE = Path(__file__).resolve().parents[1]
_MOST_BATCHES = {10_000: 3}  # all that so few sources have work for


class Caller:
    """A checkout that makes lease calls, on a Redis of its own."""

    def __init__(self, checkout: Path, sources: int, classes: int, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lease-cost-")))
        stack.callback(embedded.stop, folder)
        command = [sys.executable, str(_CALLS), embedded.ensure(folder), str(sources), str(classes)]
        environ = os.environ | {"PYTHONPATH": str(checkout)}
        self._process = stack.enter_context(
            subprocess.Popen(
                command, cwd=checkout, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )
        stack.callback(self._process.kill)

    def line(self) -> str:
        """Return the next line of the process."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the calls have failed")
        return line

    def batch(self) -> float:
        """Return the µs of a lease in a batch of calls."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self.line())


def measure(checkouts: list[Path], sources: int, classes: int, batches: int) -> list[list[float]]:
    """Return what a lease costs each of the checkouts, batch by batch."""
    with ExitStack() as stack:
        callers = [Caller(checkout, sources, classes, stack) for checkout in checkouts]
        for caller in callers:
            caller.line()  # it is filled
        turns = [[caller.batch() for caller in callers] for _ in range(batches)]
        return [list(costs) for costs in zip(*turns, strict=True)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lease_cost", description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="*", type=Path, help="others than this one, measured before it")
    parser.add_argument("--sources", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--classes", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--batches", type=int, default=15)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # not without clearing up
    checkouts = [path.resolve() for path in (*options.checkouts, _HERE)]
    print(f"{'sources':>9} classes" + "".join(f"{str(path)[-24:]:>26}" for path in checkouts))
    for sources in options.sources:
        for classes in options.classes:
            batches = min(options.batches, _MOST_BATCHES.get(sources, options.batches))
            found = measure(checkouts, sources, classes, batches)
            ratios = [statistics.median(a / b for a, b in zip(costs, found[0], strict=True)) for costs in found]
            shown = (
                f"{statistics.median(costs):18.1f} ({ratio:4.2f})"
                for costs, ratio in zip(found, ratios, strict=True)
            )
            print(f"{sources:9} {classes:7} " + "".join(shown), flush=True)


if __name__ == "__main__":
    main()
