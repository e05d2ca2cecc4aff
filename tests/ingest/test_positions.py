"""Behind which row of which file a feed stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crawlproject.errors import BadInput
from crawlproject.ingest.feeds import Position, feed_name
from crawlproject.ingest.seed_files import SeedFile
from crawlproject.ingest.seed_rows import Columns

ONE, TWO, THREE = (SeedFile(f"/seeds/{number}.csv", number * 100, number) for number in (1, 2, 3))


@pytest.mark.parametrize("position", [Position(), Position(0, 5), Position(1, 7), Position(2), Position(1, 7, 2)])
def test_it_comes_back_as_it_was(position: Position) -> None:
    assert Position.of_text(position.text([ONE, TWO]), [ONE, TWO]) == position


def test_files_behind_it_may_come_and_change(tmp_path: Path) -> None:
    text = Position(0, 7).text([ONE, TWO])
    assert Position.of_text(text, [ONE, THREE, TWO]) == Position(0, 7)


@pytest.mark.parametrize(
    "files",
    [
        [],
        [ONE],
        [TWO, ONE],
        [THREE, ONE, TWO],
        [ONE, SeedFile(TWO.name, TWO.size + 1, TWO.modified)],
        [ONE, SeedFile(TWO.name, TWO.size, TWO.modified + 1)],
        [SeedFile(ONE.name, 5, ONE.modified), TWO],
    ],
)
def test_other_files_up_to_it_are_refused(files: list[SeedFile]) -> None:
    text = Position(1, 7).text([ONE, TWO])
    with pytest.raises(BadInput, match="behind row 7 of it: some have changed, come or gone; feed them without"):
        Position.of_text(text, files)


def test_of_a_feed_of_some_files_all_must_stay_and_more_may_come() -> None:
    text = Position(0, 7, 2).text([ONE, TWO])
    assert Position.of_text(text, [ONE, TWO, THREE]) == Position(0, 7, 2)
    for files in ([ONE], [ONE, THREE, TWO]):
        with pytest.raises(BadInput, match="begin without --resume: images that were fed are probed once more"):
            Position.of_text(text, files)


def test_when_all_was_fed_a_file_that_came_since_is_next() -> None:
    text = Position(2).text([ONE, TWO])
    assert Position.of_text(text, [ONE, TWO]) == Position(2)
    assert Position.of_text(text, [ONE, TWO, THREE]) == Position(2)


@pytest.mark.parametrize("text", ["", "x", "[]", "[1]", "5", '["a", 1, ""]', "[" * 100_000])
def test_what_others_wrote_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        Position.of_text(text, [ONE])


def test_a_feed_is_known_by_its_files_wherever_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = feed_name([str(tmp_path / "a*.csv"), "s3://b/*"], Columns())
    monkeypatch.chdir(tmp_path)
    assert feed_name(["a*.csv", "s3://b/*"], Columns()) == name
    os.chdir("/")
    assert feed_name(["a*.csv", "s3://b/*"], Columns()) != name


def test_other_options_are_another_feed() -> None:
    options = [(), ("url=URL",), ("url=LINK",), ("url=URL", "TEXT"), (None, "TEXT"), (None, "url=URL")]
    columns = [Columns.of_options(*(*pair, None, None)[:2]) for pair in options]
    columns += [Columns(probe=True), Columns(probe=True, again=True)]
    assert len({feed_name(["a.csv"], one) for one in columns}) == len(columns)
    one, other = (Columns.of_options(*pair) for pair in (("url=U,uuid=K", "A,B"), ("uuid=K, url=U", "B,A")))
    assert feed_name(["a.csv"], one) == feed_name(["a.csv"], other)
