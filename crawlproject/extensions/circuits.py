"""What this worker learns of circuits.

The circuit of a source is in Redis, where all workers' results meet: `state/lua/modules/22_circuits.lua`
opens and closes it. Which outcome is a sample is said by the table in `politeness/outcomes.py`;
`extensions/lease_keeper.py` sends the samples.
"""

from __future__ import annotations

import asyncio
import json

from crawlproject.extensions import Extension
from crawlproject.streams.streams import entries_after, newest_entries

# Signals. Receivers, which may be coroutines, get `source`, `reason`, `by` (docs/operators.md) and `spider`.
circuit_opened = object()  # too many errors, or an operator: nothing goes out for a while
circuit_halted = object()  # many errors in a row, or an operator: nothing goes out until an operator resumes it
circuit_resumed = object()  # probes have succeeded, or an operator: requests go out again

_SIGNALS = {
    ("crawl_halted", "temporary"): ("opened", circuit_opened),
    ("crawl_halted", "permanent"): ("halted", circuit_halted),
    ("crawl_resumed", "temporary"): ("resumed", circuit_resumed),
    ("crawl_resumed", "permanent"): ("resumed", circuit_resumed),
}
_LOOK_EVERY_S = 1.0
_MOST = 500  # changes in that time; of more the oldest are left out


class Circuits(Extension):
    """Sends a signal for each circuit that opens, halts or resumes, whichever worker or operator was the reason.

    Each worker of the crawl is told within a second or two, by the audit trail. It counts what it was told in
    `circuits/opened`, `circuits/halted`, `circuits/resumed`.
    """

    def begin(self) -> None:
        """Follow the audit trail from now on."""
        self._last: bytes | None = None  # entry that was read
        self.loops.start(self._follow)

    async def _follow(self) -> None:
        state = self.scheduler.state
        trail = state.keys.audit
        if self._last is None:
            newest = (await newest_entries(state, {trail: 1}))[trail]
            self._last = newest[0][0] if newest else b"0-0"
        await asyncio.sleep(_LOOK_EVERY_S)
        entries = await entries_after(state, trail, self._last, _MOST)
        for entry, fields in reversed(entries):
            self._last = entry
            event = json.loads(fields[b"event"])
            if (found := _SIGNALS.get((event["event"], event.get("type")))) is not None:
                name, signal = found
                self.crawler.stats.inc_value(f"circuits/{name}")
                told = {key: event[key] for key in ("source", "reason", "by")}
                await self.crawler.signals.send_catch_log_async(signal, spider=self.crawler.spider, **told)
