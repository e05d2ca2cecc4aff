"""Plug-ins: that of docs/plugins.md, installed as a package; and the core without those that come with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject.state.keys import Keys
from demo.gallery import Gallery
from demo.redis_servers import free_port
from tests.conftest import ROOT, Scrapy
from tests.monitors import ports
from tests.test_crawl import picture, size_for
from tests.waiting import PATIENCE_S, until

CONTRIB = ROOT / "crawlproject" / "contrib"
KEYS = Keys("crawl", "images")


def package(folder: Path, name: str, text: str, point: str = "") -> None:
    """Install a package with one plug-in, of the same name."""
    about = folder / f"crawl_{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: crawl-{name}\nVersion: 1\n")
    named = point or f"{name} = crawl_{name}:PLUGIN"
    (about / "entry_points.txt").write_text(f"[crawlproject.plugins]\n{named}\n")
    (folder / f"crawl_{name}.py").write_text(text)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH in which the plug-in of docs/plugins.md, that of examples/, is installed."""
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    [point] = re.findall(r'"crawlproject\.plugins"\]\n    (.*)\n', text)
    example = ROOT / "examples" / "postgres"
    assert (example / "crawl_postgres.py").read_text(encoding="utf-8") == code
    assert point in (example / "pyproject.toml").read_text(encoding="utf-8")
    package(tmp_path, "postgres", code, point.replace('"', ""))
    assert len([line for line in code.splitlines() if line.strip()]) <= 40
    return tmp_path


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    """The DSN of a server, and the folder of its socket."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *map(Path, filter(None, [shutil.which("initdb")]))]
    if not found:
        pytest.skip("no PostgreSQL server is installed (apt install postgresql)")
    programs, data = found[0].parent, Path("/tmp") / f"crawl-postgres-{os.getpid()}"
    data.mkdir()
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.geteuid() == 0:  # it refuses to run as root
        shutil.chown(data, "nobody")
        quiet |= {"user": "nobody", "cwd": "/"}
    db, port = f"{data}/db", str(free_port())
    made = [f"{programs}/initdb", "-D", db, "-A", "trust", "-U", "crawl", "--no-sync"]
    subprocess.run(made, check=True, **quiet)
    served = [f"{programs}/postgres", "-D", db, "-p", port, "-h", "127.0.0.1", "-k", str(data)]
    server = subprocess.Popen(served, **quiet)
    try:
        yield f"postgresql://crawl@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(PATIENCE_S)
        shutil.rmtree(data)


def test_the_reader_of_the_docs_upserts_events_into_postgresql(
    scrapy: Scrapy, redis_url: str, installed: Path, postgres: str
) -> None:
    import psycopg

    def emit(stream: str, number: int, **event: Any) -> None:
        with redis.Redis.from_url(redis_url) as client:
            client.xadd(stream, {"event": json.dumps({"identifier": str(number), **event})})

    def read() -> list[Any]:
        path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = scrapy("events", f"{postgres}:postgres", "--json", PYTHONPATH=path)
        assert done.returncode == 0, done.stderr
        with psycopg.connect(postgres) as connection:
            return list(connection.execute("select id, status, event->>'width' from images order by id"))

    for number in range(3):
        emit(KEYS.image_events, number, width=9, fetched_at=f"2026-11-27T12:00:0{number}+00:00")
    emit(KEYS.page_events, 7, url="http://a.org/")  # of no interest to it
    until(lambda: bool(psycopg.connect(postgres)), despite=psycopg.OperationalError)
    assert read() == [("0", "ok", "9"), ("1", "ok", "9"), ("2", "ok", "9")]
    emit(KEYS.link_rot_events, 1, time="2026-11-27T13:00:00+00:00")
    emit(KEYS.image_events, 2, width=5, fetched_at="2026-11-27T11:00:00+00:00")  # older
    assert read() == [("0", "ok", "9"), ("1", "gone", None), ("2", "ok", "9")]


def test_a_plugin_that_is_installed_adds_commands_settings_and_extensions(scrapy: Scrapy, tmp_path: Path) -> None:
    (tmp_path / "more_commands").mkdir()
    (tmp_path / "more_commands" / "__init__.py").touch()
    (tmp_path / "more_commands" / "twice.py").write_text(
        "from crawl_more import More\nfrom crawlproject import cli, config\n"
        "class Command(cli.Command):\n    summary, examples = 'Twice', ()\n"
        "    def run(self, args, opts):\n        print(2 * config.read(More, self.settings).number)\n"
    )
    package(
        tmp_path,
        "more",
        "from dataclasses import dataclass\nfrom crawlproject import config\n"
        "from crawlproject.config.parsers import whole\nfrom crawlproject.plugins import Plugin\n"
        "@dataclass(frozen=True)\nclass More:\n    number: int = config.setting(1, whole(1), 'a number')\n"
        "PLUGIN = Plugin(settings=More, commands='more_commands', "
        "scrapy={'EXTENSIONS_BASE': {'crawl_more.Some': 900}})\n",
    )
    path: Any = {"PYTHONPATH": str(tmp_path)}
    assert scrapy("twice", CRAWL_NUMBER="21", **path).stdout == "42\n"
    done = scrapy("stats", CRAWL_NUMBER="none", **path)  # a bad value stops all that starts
    assert (done.returncode, "CRAWL_NUMBER='none' must be a whole number" in done.stderr) == (1, True)
    extensions = json.loads(scrapy("settings", "--get", "EXTENSIONS_BASE", **path).stdout)
    assert extensions["crawl_more.Some"] == 900
    assert "crawlproject.extensions.lease_keeper.LeaseKeeper" in extensions


@pytest.mark.parametrize(
    ("point", "says"),
    [
        ("nosuch:PLUGIN", "cannot be loaded (ModuleNotFoundError: No module named 'nosuch')"),
        ("crawl_bad:nothing", "cannot be loaded (AttributeError: "),
        ("crawl_bad:RAISES.x", "cannot be loaded (ZeroDivisionError: "),
        ("crawl_bad:COMMANDS", "cannot be loaded (ModuleNotFoundError: No module named 'nosuch')"),
        ("json:dumps", "must name a Plugin"),
    ],
)
def test_a_broken_plugin_stops_the_start_with_a_sentence(
    scrapy: Scrapy, tmp_path: Path, point: str, says: str
) -> None:
    code = (
        "from crawlproject.plugins import Plugin\nCOMMANDS = Plugin(commands='nosuch.commands')\n"
        "class Raises:\n    @property\n    def x(self):\n        return 1 / 0\nRAISES = Raises()\n"
    )
    package(tmp_path, "bad", code, f"bad = {point}")
    done = scrapy("list", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("scrapy: the plug-in bad ")
    assert says in line


BROKEN = """
import sys
from pathlib import Path
from crawlproject.models import FileType, Format
from crawlproject.plugins import Plugin
PLUGIN = Plugin(
    readers={"tape": "crawl_bad.Nothing"}, feeders={"tape": "nosuch.Tape"}, readings={"odd": "crawl_bad.Nothing"},
    services={"radio": "nosuch.Radio"}, formats={"TAPE": "crawl_raises:FORMAT", "DISC": "crawl_bad:DISC"},
)
DISC = Format(file=FileType(".disc", "image/disc"), begins=None, load=lambda: 1 / 0)
"""


def test_what_of_a_plugin_cannot_be_loaded_is_named_and_the_rest_works(
    scrapy: Scrapy, redis_url: str, tmp_path: Path
) -> None:
    package(tmp_path, "bad", BROKEN)
    path: Any = {"PYTHONPATH": str(tmp_path)}
    done = scrapy("events", str(tmp_path / "out.jsonl"), **path)
    assert (done.returncode, done.stdout) == (0, f"0 events written to {tmp_path / 'out.jsonl'}\n")
    assert done.stderr == (
        "note: the plug-in bad offers tape, but crawl_bad.Nothing cannot be loaded (AttributeError: module "
        "'crawl_bad' has no attribute 'Nothing'): repair it, or uninstall it\n"
    )
    done = scrapy("feed", "-", stdin="http://museum.org/a.jpg", **path)
    assert (done.returncode, done.stdout) == (0, "1 seed fed, 0 rejected\n")
    assert [line.partition(" cannot be loaded")[0] for line in done.stderr.splitlines()] == [
        "note: the plug-in bad offers tape, but nosuch.Tape",
        "note: the plug-in bad offers odd, but crawl_bad.Nothing",
    ]
    done = scrapy("feed", "--tape", **path)
    assert (done.returncode, "unknown option: --tape" in done.stderr, "Traceback" in done.stderr) == (
        2,
        True,
        False,
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("readers={'tape': 'json.dumps'}", "the plug-ins one and two both offer tape (readers): uninstall one"),
        ("formats={'TAPE': 'json:dumps'}", "the plug-ins one and two both offer TAPE (formats): uninstall one"),
        ("commands='email'", "the plug-ins one and two both offer message (commands): uninstall one"),
    ],
)
def test_two_plugins_that_offer_one_name_are_refused(scrapy: Scrapy, tmp_path: Path, text: str, says: str) -> None:
    for name in ("one", "two"):
        package(tmp_path, name, f"from crawlproject.plugins import Plugin\nPLUGIN = Plugin({text})\n")
    done = scrapy("list", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line in {f"scrapy: {says}", f"scrapy: {says.replace('message', '_encoded_words')}"}


class Copy:
    """The product alone, in a folder, without a plug-in or without all of them."""

    def __init__(self, folder: Path, environ: dict[str, str], gone: str) -> None:
        self.folder, self.environ = folder, environ | {"PYTHONPATH": "", "CRAWL_CONTACT": "mailto:t@example.org"}
        shutil.copy(ROOT / "scrapy.cfg", folder)
        shutil.copytree(
            ROOT / "crawlproject", folder / "crawlproject", ignore=shutil.ignore_patterns("__pycache__")
        )
        shutil.rmtree(folder / "crawlproject" / "contrib" / gone, ignore_errors=True)

    def scrapy(self, *args: str) -> str:
        command = [sys.executable, "-m", "scrapy", *args]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.mark.parametrize("gone", ["", *sorted(path.name for path in CONTRIB.glob("[a-z]*") if path.is_dir())])
@pytest.mark.slow
def test_the_core_runs_without_a_plugin_or_all_of_them(tmp_path: Path, gone: str) -> None:
    had = {path.stem for path in (CONTRIB / gone).rglob("commands/[a-z]*.py")}
    copy = Copy(tmp_path, dict(os.environ), gone)
    commands = set(re.findall(r"^  ([a-z]+) ", copy.scrapy("--help"), flags=re.MULTILINE))
    assert {"crawl", "events", "feed"} <= commands
    assert not had & commands
    if not gone:
        assert copy.scrapy("list").split() == ["images", "pages"]
        helps = {name: copy.scrapy(name, "--help") for name in ("events", "feed", "monitor")}
        options = set(re.findall(r"^  (--[a-z]+)", helps["feed"], flags=re.MULTILINE))
        assert "--columns" in options
        assert not {"--probe", "--again", "--kafka"} & options


def test_without_all_of_them_a_crawl_fetches_what_it_is_fed(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "sites" / "photos").mkdir(parents=True)
    for number in range(5):
        (tmp_path / "sites" / "photos" / f"{number}.jpg").write_bytes(picture(number))
    catalogue = [{"source_name": "127.0.0.1", "image_count": size_for(50)}]
    (tmp_path / "catalogue.json").write_text(json.dumps(catalogue))
    settings = {
        "CRAWL_SOURCES": "catalogue.json",
        "IMAGES_STORE": "thumbnails",
        "MAX_IDLE_TIME_BEFORE_CLOSE": "0.5",
    }
    environ = {name: value for name, value in environment.items() if name not in ports()}  # which are of plug-ins
    copy = Copy(tmp_path, environ | settings, "")
    with Gallery(tmp_path / "sites", tmp_path / "arrivals.jsonl") as gallery:
        seeds = [f"{gallery.urls['photos']}/{number}.jpg" for number in range(5)]
        (tmp_path / "seeds.txt").write_text("\n".join(seeds))
        copy.scrapy("feed", "seeds.txt")
        copy.scrapy("crawl", "images")
    copy.scrapy("events", "events.jsonl")
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert sorted((event["event"], event["url"]) for event in events) == [
        ("image_metadata_updates", seed) for seed in seeds
    ]
    assert len(list((tmp_path / "thumbnails").rglob("*.jpg"))) == 5
