"""Round trips to Redis, counted at the server.

Redis counts what a function calls as it counts what a client sends: `total_commands_processed`, the slow log and
`INFO commandstats` all mix the two. So there are two counts here, with the truth between them:

- At least: calls of the commands that no function of ours names. `FCALL`, `BLMOVE`, `MGET` and the like are
  only sent by clients. What both send (`HGETALL`, say) is left out.
- At most: how often the server read from a client's socket, or wrote to one, whichever is less. A round trip
  takes one of each at least; a request of more than 16 KiB takes several reads, a long reply several writes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple, Self

from redis import Redis

from benchmarks.ours import ROOT


def commands_of_scripts(checkout: Path) -> set[str]:
    """Return the commands that the functions, or scripts, of a checkout of crawlproject call, in lower case.

    They call some by functions of their own, so any function counts whose first argument looks like a command.
    """
    texts = [file.read_text() for file in (checkout / "crawlproject").rglob("*.lua")]
    calls = re.compile(r"\('(?:[a-z]+', ')?([A-Z]+)'")  # a reading one of a script had the type before it
    return {name.lower() for text in texts for name in calls.findall(text)}


class Usage(NamedTuple):
    """What a Redis has done: commands that only clients send, exchanges with them, and its CPU seconds."""

    commands: int
    exchanges: int
    cpu: float

    @classmethod
    def of(cls, client: Redis, checkout: Path = ROOT) -> Self:
        """Return the sums since the server started; its clients run the crawlproject in `checkout`."""
        info: dict[str, Any] = client.info("everything")
        internal = commands_of_scripts(checkout)
        # A subcommand has a line of its own: `cmdstat_function|load`.
        calls = {
            key.removeprefix("cmdstat_"): row["calls"] for key, row in info.items() if key.startswith("cmdstat_")
        }
        return cls(
            sum(count for name, count in calls.items() if name.partition("|")[0] not in internal),
            min(info["total_reads_processed"], info["total_writes_processed"]),
            info["used_cpu_user"] + info["used_cpu_sys"],
        )

    def since(self, before: Usage) -> Usage:
        """Return the difference."""
        return Usage(self.commands - before.commands, self.exchanges - before.exchanges, self.cpu - before.cpu)
