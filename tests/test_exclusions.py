"""Names of what is excluded, the file that lists them, and the leader, which follows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlproject.errors import ConfigError
from crawlproject.exclusions import (
    ExclusionList,
    domains_above,
    excluded_names,
    exclusion_names,
    exclusion_of,
    is_domain,
    parse_exclusions,
    read_exclusions,
)
from crawlproject.sources.names import source_name
from crawlproject.state.client import State
from tests.state.calls.calls import db, rule


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("museum", ["museum"]),
        (" Museum.Example ", ["museum.example"]),
        ("museum.example.", ["museum.example", "museum.example."]),
        ("bücher.example", ["xn--bcher-kva.example", "bücher.example"]),
        ("Müseum.Coll", ["xn--mseum-kva.coll", "müseum.coll"]),
        ("192.0.2.7", ["192.0.2.7"]),
        ("2001:DB8::7", ["2001:db8::7"]),
        ("[2001:db8::7]", ["2001:db8::7"]),
        ("city:museum", ["city:museum"]),
        ("bücher", ["bücher"]),
    ],
)
def test_a_name_is_excluded_as_a_domain_and_as_a_source(given: str, names: list[str]) -> None:
    assert exclusion_names(given) == names
    assert is_domain(names[0]) == (names[0] not in {"museum", "city:museum", "bücher"})


@pytest.mark.parametrize("name", ["europeana.eu:123", ".a", "a.example:80"])
def test_any_name_of_a_source_is_one(name: str) -> None:
    assert exclusion_names(name.upper()) == [source_name(name)]
    assert not is_domain(name)


@pytest.mark.parametrize(
    "given", ["", "a b", "https://a.example/", "a" * 200, "*.a.example", "me@a.example", "-a"]
)
def test_what_is_neither_domain_nor_source_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"neither a source nor a domain|1 to 128 letters"):
        exclusion_names(given)


def test_a_host_is_below_its_domains_but_not_below_the_top_level_one() -> None:
    assert domains_above("a.b.museum.example") == ["a.b.museum.example", "b.museum.example", "museum.example"]
    assert domains_above("museum.example") == ["museum.example"]
    assert domains_above("localhost") == ["localhost"]


def test_a_file_has_a_name_a_line_and_comments() -> None:
    text = "# never\n\nMuseum.example  # asked by mail, # twice\n  museum\r\nbücher.example\n"
    assert parse_exclusions(text) == {
        "museum.example": "asked by mail, # twice",
        "museum": "",
        "xn--bcher-kva.example": "",
        "bücher.example": "",
    }


def test_a_comment_begins_at_the_start_of_a_line_or_after_white_space() -> None:
    assert parse_exclusions("#all\nmuseum\t#gone #2\n  # more\n") == {"museum": "gone #2"}
    with pytest.raises(ValueError, match="line 1: source 'museum#1' must be"):
        parse_exclusions("museum#1\n")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"a.example\nhttp://b.example\n", ", line 2: 'http://b.example' is neither a source nor a domain"),
        (b".museum.example\n", ", line 1: '.museum.example' begins with a dot: leave it out"),
        (b"a.example, b.example\n", ", line 1: source 'a.example, b.example' must be 1 to 128 letters"),
        (b"\xff\xfe\n", " is not UTF-8"),
        (None, " cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(
    tmp_path: Path, content: bytes | None, fault: str
) -> None:
    file = tmp_path / "never.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_exclusions(str(file))
    assert str(caught.value).startswith(f"CRAWL_EXCLUDE={file}{fault}")


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
