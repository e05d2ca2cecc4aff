"""The tables of docs/flow.md say what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from crawlproject.config import SETTINGS
from crawlproject.monitoring.metrics import CrawlCollector, WorkerCollector
from crawlproject.monitoring.snapshot import General, Specific
from crawlproject.politeness.kinds import ERROR_KINDS
from crawlproject.records import ImageEvent, LinkRotEvent
from crawlproject.store.keys import Keys
from tests.monitoring.test_snapshot import reading, source

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


def test_the_line_of_the_monitor_is_documented_key_for_key() -> None:
    text = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")

    def named(heading: str) -> list[str]:
        section = re.split(r"^##", text.split(f"### {heading}\n")[1], flags=re.MULTILINE)[0]
        return re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)

    assert named("general") == [field.name for field in fields(General)]
    assert named("specific") == [field.name for field in fields(Specific)]
    assert named("Kinds of errors") == list(ERROR_KINDS)


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    text = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    one = reading(1.0, source("museum"))
    collectors = CrawlCollector("images", lambda: one), WorkerCollector("images", lambda name: 0, lambda: 0)
    metrics = [metric for collector in collectors for metric in collector.collect()]
    expected = []
    for metric in metrics:
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = [label for label in metric.samples[0].labels if label not in {"spider", "le"}]
        expected.append(
            [f"`{name}`", metric.type, ", ".join(f"`{label}`" for label in labels), metric.documentation]
        )
    rows = [line for line in text.split("## Metrics\n")[1].splitlines() if line.startswith("| `crawl_")]
    assert [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows] == expected
