"""What an operator does to sources, from the terminal or the dashboard; takes effect within two seconds.

`by` says who does it, for the audit trail: where the order comes from, and the user or address.
"""

from __future__ import annotations

from crawlproject.frontier.dropped import count_queued, drop_queued, forget_dropped
from crawlproject.sources.rates import OVER_ROBOTS, rate_of
from crawlproject.state.client import State
from crawlproject.state.halts import add_halts, delete_statuses, note_order, remove_halts
from crawlproject.state.robots_copies import expire_copies
from crawlproject.state.source_table import delete_override, set_override
from crawlproject.state.users_keys import note_in_users_set


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


async def exclude(state: State, names: list[str], reason: str, by: str) -> dict[str, int]:
    """Send nothing more to sources and domains; return how many queued requests of each were dropped at once.

    Those that a source with other hosts has for an excluded domain are dropped when their turn comes.
    """
    await note_in_users_set(state, "excluded", add=names)
    excluded = await state.scripts.exclude(dict.fromkeys(names, reason), by=by)
    return {one.name: await drop_queued(state, one.name) if one.has_work else 0 for one in excluded}


async def include(state: State, names: list[str], by: str) -> dict[str, str]:
    """Include sources and domains again; return what each is by now: see include.lua.

    When this returns, the seeds that were dropped are no duplicates any more.
    """
    included = await state.scripts.include(names, by=by)
    gone = [name for name, now in included.items() if now in {"included", "not excluded"}]
    await note_in_users_set(state, "excluded", take=gone)
    await forget_dropped(state)
    return included


async def purge(state: State, source: str, by: str) -> int:
    """Empty the queue of a source; return how many requests were dropped. They are no duplicates any more."""
    dropped = await drop_queued(state, source, "purged", by)
    await forget_dropped(state)
    return dropped


async def purgeable(state: State, source: str) -> int:
    """Return how many requests `purge` would drop."""
    return await count_queued(state, source)
