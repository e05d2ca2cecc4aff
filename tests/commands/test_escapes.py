"""What commands print has nothing in it that a terminal obeys, whatever stands in Redis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.hostile.escapes import COMMANDS, NASTY, plant
from tests.commands.test_dead import reject

if TYPE_CHECKING:
    from tests.commands.conftest import Frontier
    from tests.conftest import Scrapy


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
async def test_foreign_data_moves_no_cursor(
    scrapy: Scrapy, frontier: Frontier, redis_url: str, command: list[str]
) -> None:
    await frontier.start()
    await frontier.catalogue({"museum": 1.0})
    await reject(frontier.state, (NASTY.encode(), NASTY))
    plant(redis_url)
    done = scrapy(*command)
    shown = (done.stdout + done.stderr).replace("\n", "")
    assert "museum" in shown
    assert shown.isprintable()


def test_the_name_of_a_file_moves_no_cursor(scrapy: Scrapy, tmp_path: Path) -> None:
    done = scrapy("events", str(tmp_path / NASTY))
    assert done.stdout.startswith("0 events written to ")
    assert (done.stdout + done.stderr).replace("\n", "").isprintable()
