"""Which hosts a source was seen on in the last minutes, and the one that all of its errors come from."""

from __future__ import annotations

import json

from crawlproject.state.calls import Settlement, SourceStatus
from crawlproject.state.client import State
from tests.state.calls.calls import begin, db, entry, lease, put
from tests.waiting import until_async


async def crawl(state: State, *results: tuple[str, bool]) -> SourceStatus:
    """Crawl a request for each host, well or not; return the status of the source then."""
    await put(state, [entry(str(number)) for number in range(len(results))])
    grants = (await lease(state, horizon=10.0)).grants
    done = [
        Settlement(
            grant.id, "museum", event=("link_rot", "{}"), status="200" if fine else "500", fine=fine, host=host
        )
        for grant, (host, fine) in zip(grants, results, strict=True)
    ]
    await state.scripts.settle("w", done)
    return (await state.scripts.inspect(["museum"]))[0]


async def start(state: State) -> None:
    """Begin when no turn, at whose end all numbers begin anew, is about to end."""

    async def is_turn_young() -> bool:
        seconds, _ = await db(state).time()
        return bool(seconds % 300 < 280)

    await until_async(is_turn_young)
    await begin(state, 200)


async def test_hosts_are_counted_with_their_successes_and_errors(state: State) -> None:
    await start(state)
    assert (await state.scripts.inspect(["museum"]))[0].hosts == []
    await crawl(state, ("a.museum.org", True), ("b.museum.org", True))
    status = await crawl(state, ("a.museum.org", True), ("a.museum.org", False))
    assert [tuple(one.values()) for one in status.hosts] == [("a.museum.org", 2, 1), ("b.museum.org", 1, 0)]
    assert status.failing_host == "a.museum.org"


async def test_of_many_hosts_eight_are_named_and_the_rest_counted_together(state: State) -> None:
    await start(state)
    many = [(f"h{number}.museum.org", True) for number in range(20)]
    status = await crawl(state, *many, ("x" * 1000, False), ("h3.museum.org", True))
    seen = [tuple(one.values()) for one in status.hosts]
    assert seen == [*((host, 2 if host.startswith("h3.") else 1, 0) for host, _ in many[:8]), (None, 12, 1)]
    assert status.failing_host == ""  # it is not known which


async def reasons(state: State) -> list[str]:
    return [json.loads(fields[b"event"])["reason"] for _, fields in await db(state).xrange(state.keys.audit)]


async def test_a_circuit_that_one_of_several_hosts_has_opened_says_so(state: State) -> None:
    await start(state)
    await crawl(state, *[("good.museum.org", True)] * 5, *[("bad.museum.org", False)] * 2)
    assert (await reasons(state))[-1].endswith(", all at bad.museum.org")


async def test_it_does_not_where_all_hosts_fail_or_there_is_but_one(state: State) -> None:
    await start(state)
    await crawl(state, *[("a.museum.org", True)] * 5, ("a.museum.org", False), ("b.museum.org", False))
    assert "all at" not in (await reasons(state))[-1]
