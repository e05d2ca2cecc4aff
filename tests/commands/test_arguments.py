"""Arguments of commands: names, and what only looks like an option."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawlproject.texts import printable
from tests.commands.conftest import Frontier
from tests.conftest import Scrapy
from tests.pasting import HOSTILE, pasted


async def test_what_operators_type_is_handed_back_quoted(scrapy: Scrapy, frontier: Frontier) -> None:
    for name in HOSTILE:
        done = scrapy("excluded", "--", name)
        assert done.returncode == 2
        ends = ["--"] if name.startswith("-") else []
        assert pasted(done.stderr)[-1] == ["exclude", *ends, printable(name, len(name))]


@pytest.mark.parametrize(
    "command",
    [["halt"], ["resume"], ["exclude"], ["include"], ["purge", "--yes"], ["sources"], ["rate"], ["top", "--once"]],
    ids=" ".join,
)
async def test_a_name_behind_two_dashes_is_no_option(
    scrapy: Scrapy, frontier: Frontier, command: list[str]
) -> None:
    await frontier.catalogue({"museum": 5.0, "json": 5.0})
    value = ["1"] if command == ["rate"] else []
    done = scrapy(*command, "--", "museum", *value)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("-rf", "--json", "--"):
        done = scrapy(*command, "--", name, *value)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"source {name!r} must be 1 to 128 letters" in done.stderr
        done = scrapy(*command, name, *value) if name == "-rf" else done
        assert (done.returncode, done.stdout) == (2, "")


async def test_a_url_or_a_file_may_follow_two_dashes(scrapy: Scrapy, frontier: Frontier, tmp_path: Path) -> None:
    assert json.loads(scrapy("explain", "--json", "--", "http://museum.org/?a=$(reboot)&b").stdout)["source"]
    (tmp_path / "-rf").write_text("http://museum.org/a.jpg\n")
    done = scrapy("feed", "--", "-rf", cwd=tmp_path, SCRAPY_SETTINGS_MODULE="crawlproject.settings")
    assert (done.returncode, done.stdout) == (0, "1 seed fed, 0 rejected\n"), done.stderr
    assert scrapy("feed", "--", "-", stdin="http://museum.org/b.jpg\n").stdout == "1 seed fed, 0 rejected\n"


@pytest.mark.parametrize("command", ["feed", "explain", "events", "dead", "excluded", "stats", "redis"])
def test_an_unknown_option_is_named(scrapy: Scrapy, command: str) -> None:
    done = scrapy(command, "--bogus", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown option: --bogus" in done.stderr
