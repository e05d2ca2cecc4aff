"""Which hosts a source was seen on in the last minutes, and the one that all of its errors come from."""

from __future__ import annotations

import json

import pytest

from crawlproject.state.calls import SourceStatus
from crawlproject.state.client import State
from tests.state.calls.calls import begin, db, entry, lease, put, settle

pytestmark = pytest.mark.usefixtures("clock")  # no turn, at whose end all numbers begin anew, ends meanwhile


async def crawl(state: State, *results: tuple[str, bool]) -> SourceStatus:
    """Crawl a request for each host, well or not; return the status of the source then."""
    await put(state, [entry(str(number)) for number in range(len(results))])
    grants = (await lease(state, horizon=10.0)).grants
    for grant, (host, fine) in zip(grants, results, strict=True):
        status = "200" if fine else "500"
        await settle(state, grant, event=("link_rot", "{}"), status=status, fine=fine, host=host)
    return (await state.scripts.inspect(["museum"]))[0]


async def test_hosts_are_counted_with_their_successes_and_errors(state: State) -> None:
    await begin(state, 200)
    assert (await state.scripts.inspect(["museum"]))[0].hosts == []
    await crawl(state, ("a.museum.org", True), ("b.museum.org", True))
    status = await crawl(state, ("a.museum.org", True), ("a.museum.org", False))
    assert [tuple(one.values()) for one in status.hosts] == [("a.museum.org", 2, 1), ("b.museum.org", 1, 0)]
    assert status.failing_host == "a.museum.org"


async def test_of_many_hosts_eight_are_named_and_the_rest_counted_together(state: State) -> None:
    await begin(state, 200)
    many = [(f"h{number}.museum.org", True) for number in range(20)]
    status = await crawl(state, *many, ("x" * 1000, False), ("h3.museum.org", True))
    seen = [tuple(one.values()) for one in status.hosts]
    assert seen == [*((host, 2 if host.startswith("h3.") else 1, 0) for host, _ in many[:8]), (None, 12, 1)]
    assert status.failing_host == ""  # it is not known which


@pytest.mark.parametrize(
    ("fine", "failing", "said"), [("a", ["b", "b"], "b.museum.org"), ("a", ["a", "b"], ""), ("a", ["a"], "")]
)
async def test_a_circuit_that_one_of_several_hosts_has_opened_says_so(
    state: State, fine: str, failing: list[str], said: str
) -> None:
    await begin(state, 200)
    await crawl(state, *[(f"{fine}.museum.org", True)] * 5, *((f"{name}.museum.org", False) for name in failing))
    [(_, fields)] = await db(state).xrange(state.keys.audit)
    assert json.loads(fields[b"event"])["reason"].partition(", all at ")[2] == said
