"""The tables of docs/ say what the code says."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from scrapy.settings import Settings

from crawlproject import plugins
from crawlproject.config import SETTINGS
from crawlproject.frontier.dead_letters import failed_event
from crawlproject.models import ImageEvent, LinkRotEvent, MediaEvent, PageEvent
from crawlproject.politeness.outcomes import ERROR_KINDS
from crawlproject.state.keys import Keys
from tests.conftest import ROOT
from tests.status.test_snapshot import between, sample_at, source

CONTRIB = ROOT / "crawlproject" / "contrib"
_OF_EXAMPLES = {"state/lua/functions/VERB.lua", "alerts.py", "crawl_postgres.py"}


def documents() -> list[Path]:
    folders = (ROOT, ROOT / "docs", ROOT / "benchmarks", *CONTRIB.glob("*"))
    return [path for folder in folders for path in folder.glob("*.md")]


def is_of_a_plugin_that_was_deleted(path: Path) -> bool:
    return CONTRIB.resolve() in path.resolve().parents and not path.parent.exists()


def section(file: str, heading: str) -> str:
    """Return what is under a heading of a file of docs/, up to the next one."""
    text = (ROOT / "docs" / file).read_text(encoding="utf-8")
    return re.split(r"^##", text.split(f"# {heading}\n")[1], flags=re.MULTILINE)[0]


def documented(heading: str) -> list[str]:
    """Return the keys in the tables under a heading of docs/events.md."""
    return keys(section("events.md", heading))


def rows(text: str) -> list[list[str]]:
    """Return the rows of the tables in a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {index - 1 for index, line in enumerate(lines) if line.startswith("|---")}
    kept = [line for index, line in enumerate(lines) if index not in heads and not line.startswith("|---")]
    return [[cell.strip() for cell in line[1:-1].split(" | ")] for line in kept]


def keys(text: str) -> list[str]:
    """Return the keys in the first column of the tables in a text; a row may have several."""
    return [key for row in rows(text) for key in re.findall(r"`(\w+)`", row[0])]


def shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"`{', '.join(map(str, value))}`" if value else "empty"
    return f"`{value}`"


def test_the_tables_of_settings_are_those_of_the_code() -> None:
    ours = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8").split("## Scrapy's own\n")[0]
    assert sorted(rows(ours)) == sorted(
        [f"`{name}`", shown(setting["default"]), setting["unit"], setting["meaning"]]
        for name, setting in SETTINGS.items()
    )


def test_the_defaults_of_scrapys_settings_are_those_in_force() -> None:
    settings = Settings()
    settings.setmodule("crawlproject.settings")
    told = [row for row in rows(section("settings.md", "Scrapy's own")) if len(row) == 4]
    assert len(told) > 10
    for name, default, *_ in told:
        assert name.strip("`") in settings
        assert shown(settings[name.strip("`")]) == default
    for names, _ in (row for row in rows(section("settings.md", "Scrapy's own")) if len(row) == 2):
        for name in names.split(", "):
            assert name.strip("`") in settings or name == "`SCHEDULER_FLUSH_ON_START`"  # scrapy-redis' name


def test_every_link_between_the_documents_leads_somewhere() -> None:
    files = documents()
    assert len(files) > 8
    for file in files:
        text = file.read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
            other = (file.parent / target) if target else file
            if is_of_a_plugin_that_was_deleted(other):
                continue
            assert other.exists(), f"{file.name}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), flags=re.MULTILINE)
                spelled = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
                assert anchor in spelled, f"{file.name}: {target}#{anchor}"


def test_the_keys_that_users_write_to_are_those_of_the_code() -> None:
    spelled = {spelling for _, spelling in Keys("crawl", "images").items()}
    named = [row[0].strip("`").removesuffix("SOURCE") for row in rows(section("flow.md", "Keys"))]
    assert len(named) == 4
    assert set(named) <= spelled


def test_the_events_are_documented_field_for_field() -> None:
    modes = plugins.offered("modes")
    for event in (ImageEvent, LinkRotEvent, PageEvent, MediaEvent):
        named = [name for name in documented(event.STREAM) if name != "probe"]
        assert named == [field.name for field in fields(event) if field.name != "mode"]
    failed = failed_event("1-1", {b"seed": b"x", b"reason": b"y"})
    assert failed is not None
    assert ["event", *(name for name in documented("failed") if name != "probe" or name in modes)] == list(failed)


def test_the_line_of_the_monitor_is_documented_key_for_key() -> None:
    made = between(sample_at(1.0), sample_at(2.0, source("museum")))
    assert documented("general") == list(made.general)
    assert documented("specific") == list(made.specific["museum"])
    assert documented("Kinds of errors") == list(ERROR_KINDS)


def test_every_command_and_key_that_the_runbook_names_is_there() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\bcrawlproject ([a-z]+)\b", text))
    assert len(named) > 9
    ours = {path.stem for path in (ROOT / "crawlproject" / "commands").glob("*.py")}
    assert named <= ours
    keys = {spelling.rstrip(":") for _, spelling in Keys("crawl", "images").items()}
    for key in re.findall(r"\b(crawl:[a-z0-9_]+(?::[a-z_]+)*|images:start_urls)", text):
        assert key in keys or key.rpartition(":")[0] in keys, key


def test_every_file_of_the_product_that_a_document_names_is_there() -> None:
    folders = (ROOT / "crawlproject", ROOT / "tests")
    known = {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.glob("**/*.*")}
    ends = {"/".join(name.split("/")[-depth:]) for name in known for depth in range(1, 6)}
    found = 0
    for file in documents():
        if file.name in {"CHANGELOG.md"}:
            continue
        named = set(re.findall(r"`([\w/]+\.(?:py|lua))`", file.read_text(encoding="utf-8")))
        others = {name for name in named if (ROOT / name).exists()}
        assert named <= ends | others | _OF_EXAMPLES, f"{file.name}: {sorted(named - ends - others)}"
        found += len(named)
    assert found > 60
