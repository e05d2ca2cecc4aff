"""The tables of docs/flow.md say what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from crawlproject.config import SETTINGS
from crawlproject.records import ImageEvent, LinkRotEvent
from crawlproject.store.keys import Keys

ROOT = Path(__file__).parents[1]


def table(heading: str) -> list[list[str]]:
    """Return the rows of the table under a heading of docs/flow.md."""
    text = (ROOT / "docs" / "flow.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", text.split(f"## {heading}\n")[1], flags=re.MULTILINE)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[2:]]


def shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"`{', '.join(value)}`" if value else "empty"
    return f"`{value}`"


def test_the_table_of_settings_is_that_of_the_code() -> None:
    assert table("Settings") == [
        [f"`{name}`", shown(setting["default"]), setting["meaning"]] for name, setting in SETTINGS.items()
    ]


def test_the_table_of_keys_is_that_of_the_code() -> None:
    keys = Keys("crawl", "images")
    expected = []
    for name, spelling in keys.items():
        meaning = " ".join((getattr(Keys, name).__doc__ or "").split())
        expected.append([f"`{spelling}`" + (" + ..." if name.endswith("_of") else ""), meaning])
    assert table("Keys") == expected


def test_every_file_that_the_way_of_an_image_names_is_there() -> None:
    text = (ROOT / "docs" / "flow.md").read_text(encoding="utf-8")
    named = re.findall(
        r"`((?:frontier|store|spiders|middlewares|pipelines|extensions|politeness|imaging|sinks|monitoring)/[\w./]+)`",
        text,
    )
    assert len(named) > 15
    assert [name for name in named if not (ROOT / "crawlproject" / name).exists()] == []


def test_the_events_are_documented_field_for_field() -> None:
    text = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
    for event in (ImageEvent, LinkRotEvent):
        section = re.split(r"^## ", text.split(f"## {event.STREAM}\n")[1], flags=re.MULTILINE)[0]
        named = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
        assert named == [field.name for field in fields(event)]
