"""What an operator does to sources, from the terminal or the dashboard; takes effect within two seconds.

`by` says who does it, for the audit trail: where the order comes from, and the user or address.
"""

from __future__ import annotations

from crawlproject.sources.rates import OVER_ROBOTS, rate_of
from crawlproject.state.client import State
from crawlproject.state.halts import add_halts, delete_statuses, note_order, remove_halts
from crawlproject.state.robots_copies import expire_copies
from crawlproject.state.source_table import delete_override, set_override


async def halt(state: State, sources: list[str], by: str) -> None:
    """Send nothing more to `sources` until they are resumed."""
    await note_order(state, sources, "halt", by)
    await add_halts(state, sources)


async def resume(state: State, sources: list[str], by: str) -> list[str]:
    """Resume `sources` with nothing held against them; return those that were halted."""
    await note_order(state, sources, "halt", by)
    resumed = await remove_halts(state, sources)
    # That clears what their statuses have led to: a hold by Retry-After, a lower rate.
    await delete_statuses(state, [name for name in sources if name not in resumed])
    # The delays in their robots.txt still hold, but the files may have changed.
    for name in sources:
        await expire_copies(state, name)
    return resumed


async def set_rate(state: State, source: str, value: str, by: str, *, over_robots: bool = False) -> float | None:
    """Set the rate of a source in requests a second, or with `auto` let its size decide; return the override.

    With `over_robots` it holds whatever delay the source's robots.txt asks for; otherwise that binds, too.

    Raises:
        ValueError: `value` is neither.

    """
    if value == "auto":
        await note_order(state, [source], "rate", by)
        await delete_override(state, source)
        return None
    rate = rate_of(value.encode(errors="replace"))
    if rate is None:
        raise ValueError(f"{value!r} is not a rate: expected a number of requests a second, 0 or more, or auto")
    await note_order(state, [source], "rate", by)
    await set_override(state, source, f"{value} {OVER_ROBOTS}" if over_robots else value)
    return rate
