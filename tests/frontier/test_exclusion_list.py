"""What the leader does about exclusions: it follows a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlproject.exclusions.stored import excluded_names, exclusion_of
from crawlproject.frontier.exclusion_list import ExclusionList
from crawlproject.state.client import State
from tests.state.calls.calls import db, rule


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "never.txt"


def write(file: Path, text: str) -> None:
    """Replace the file, as careful people and Kubernetes do."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


async def excluded(state: State) -> set[bytes]:
    found: set[bytes] = await db(state).smembers(state.keys.excluded)
    return found


async def test_names_come_and_go_with_their_lines(state: State, file: Path) -> None:
    fence = await rule(state)
    followed = ExclusionList(str(file))
    assert not followed.is_published
    write(file, "gone.example  # asked by mail\nmuseum\n")
    await followed.follow_file(state, fence)
    assert followed.is_published
    assert await excluded(state) == {b"gone.example", b"museum"}
    assert [(one.name, one.by, one.reason, one.in_file) for one in await excluded_names(state)] == [
        ("gone.example", "CRAWL_EXCLUDE", "asked by mail", True),
        ("museum", "CRAWL_EXCLUDE", "", True),
    ]
    assert await exclusion_of(state, "any", "img.gone.example") == "gone.example"
    assert await exclusion_of(state, "any", "gone.org") is None
    await state.scripts.exclude({"museum": ""}, by="me")
    write(file, "other.example\n")
    await followed.follow_file(state, fence)
    assert await excluded(state) == {b"other.example", b"museum"}  # what an operator said stays


async def test_a_long_file_is_published_whole_and_given_up_whole(state: State, file: Path) -> None:
    fence = await rule(state)
    followed = ExclusionList(str(file))
    write(file, "\n".join(f"{number}.example" for number in range(2500)))
    await followed.follow_file(state, fence)
    assert len(await excluded(state)) == len(await excluded_names(state)) == 2500
    write(file, "")
    await followed.follow_file(state, fence)
    assert await db(state).keys("crawl:excluded*") == []


async def test_a_file_that_has_become_invalid_changes_nothing_and_is_logged_once(
    state: State, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fence = await rule(state)
    followed = ExclusionList(str(file))
    write(file, "gone.example\n")
    await followed.follow_file(state, fence)
    write(file, "http://gone.example/\n")
    for _ in range(3):
        await followed.follow_file(state, fence)
    file.unlink()
    await followed.follow_file(state, fence)
    assert await excluded(state) == {b"gone.example"}
    first, second = [record.message for record in caplog.records]
    assert "line 1: 'http://gone.example/' is neither" in first
    assert "No such file" in second
    write(file, "other.example\n")
    await followed.follow_file(state, fence)
    assert await excluded(state) == {b"other.example"}
