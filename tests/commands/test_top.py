"""`scrapy top`, on a real terminal (pty) whose screen is read as a person would, and without one."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyte
import pytest
from rich.console import Console

from crawlproject.commands.top import view
from crawlproject.state.calls import Pause
from crawlproject.state.client import State
from crawlproject.status.snapshot import Snapshot
from tests.commands.conftest import Frontier
from tests.conftest import ROOT, Scrapy
from tests.state.servers import Server
from tests.status.test_snapshot import between, sample_at, source
from tests.waiting import PATIENCE_S

_LINES = 30
IMAGES: dict[str, Any] = {"counts": {"fetched": 1, "thumbnails": 1, "bytes": 500}, "latency": 0.2}


class Terminal:
    """A terminal in which one `scrapy top` runs."""

    def __init__(self, columns: int) -> None:
        self.ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.theirs, (_LINES, columns))
        self.screen = pyte.Screen(columns, _LINES)
        self.said = b""
        self._stream = pyte.ByteStream(self.screen)
        self.before = termios.tcgetattr(self.theirs)

    def start(self, environment: dict[str, str], command: Sequence[str], cwd: Path = ROOT) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", LEADER, sys.executable, *command],
            cwd=cwd, env=environment, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs,
            start_new_session=True,
        )  # fmt: skip

    def read(self, seconds: float) -> None:
        """Take what is shown within a time."""
        ready, _, _ = select.select([self.ours], [], [], seconds)
        if ready:
            data = os.read(self.ours, 65536)
            self.said += data
            self._stream.feed(data)

    def until(self, holds: Callable[[str], object]) -> str:
        """Return what the screen shows once it `holds`."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(text := "\n".join(line.rstrip() for line in self.screen.display)):
            assert time.monotonic() < deadline, text
            self.read(0.1)
        return text

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def end(self) -> int:
        """Return how the command ended, and that the terminal is as it was."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            self.read(0.05)
        for _ in range(20):
            self.read(0.01)
        assert termios.tcgetattr(self.theirs) == self.before
        assert self.said.count(b"\x1b[?1049h") == self.said.count(b"\x1b[?1049l") > 0  # the other screen
        assert self.said.rindex(b"\x1b[?25h") > self.said.rindex(b"\x1b[?25l")  # the cursor
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


# Makes the pty the controlling terminal, so that keys become signals and stops are seen, as under a shell.
LEADER = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def environment_of_terminals(environment: dict[str, str]) -> dict[str, str]:
    bare = {name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
    return bare | {"TERM": "xterm-256color"}


@contextmanager
def top(
    environment: dict[str, str],
    *args: str,
    columns: int = 120,
    command: Sequence[str] = ("-m", "scrapy", "top"),
    cwd: Path = ROOT,
) -> Iterator[Terminal]:
    one = Terminal(columns)
    one.start(environment, [*command, *args], cwd)
    try:
        yield one
    finally:
        one.close()


async def crawl(frontier: Frontier) -> None:
    """Have a catalogue, and a source in each kind of trouble."""
    await frontier.catalogue({"museum": 5.0, "flickr": 200.0, "busy": 100.0, "broken": 20.0})
    await frontier.settle("flickr", ["200"] * 20, **IMAGES)
    await frontier.settle("busy", ["429"], slows=True)
    await frontier.settle("broken", ["500"] * 6)
    await frontier.feed("museum", 8)
    await frontier.redis.sadd(frontier.state.keys.halted, "museum")


async def test_the_crawl_is_shown_until_ctrl_c(
    environment_of_terminals: dict[str, str], frontier: Frontier, state: State
) -> None:
    await crawl(frontier)
    with top(environment_of_terminals, "--interval", "0.5", columns=150) as terminal:
        text = terminal.until(lambda text: "flickr" in text)  # the last row
        lines = text.splitlines()
        assert lines[0].startswith("images of crawl  ")
        assert "workers 1" in text
        assert "0 dead letters  0 excluded" in text
        rows = {line.split()[0]: line for line in lines[4:] if line}
        assert list(rows)[:5] == ["source", "museum", "broken", "busy", "flickr"]
        assert "HALTED" in rows["museum"] and "halted until scrapy resume museum" in rows["museum"]
        assert "OPEN" in rows["broken"] and "circuit open for" in rows["broken"]
        assert "slowed" in rows["busy"] and "slowed to 50 % by status 429" in rows["busy"]
        assert " 100 " in rows["busy"] and " 50 " in rows["busy"]
        assert any(char.fg == "red" for line in terminal.screen.buffer.values() for char in line.values())
        terminal.press(b"\x03")
        assert terminal.end() == 0
    leader = await frontier.redis.get(state.keys.leader)
    assert leader == b"leader"
    workers = await frontier.redis.zrange(state.keys.workers, 0, -1)
    assert workers == [b"w"]


async def test_a_redis_that_hangs_does_not_keep_it_from_being_left(
    environment_of_terminals: dict[str, str], tmp_path: Path
) -> None:
    server = Server(tmp_path)
    try:
        with top(environment_of_terminals | {"REDIS_URL": server.url}, "--interval", "0.5") as terminal:
            terminal.until(lambda text: "NOTHING GOES OUT: no worker is running: scrapy crawl images" in text)
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(1)
            terminal.press(b"\x03")
            assert terminal.end() == 0  # while Redis hangs
    finally:
        server.process.send_signal(signal.SIGCONT)
        server.close()


async def test_without_a_terminal_one_table_is_printed(scrapy: Scrapy, frontier: Frontier) -> None:
    await crawl(frontier)
    for args in ((), ("--once",)):
        done = scrapy("top", "--interval", "0.5", *args, FORCE_COLOR="1", TERM="xterm-256color")
        assert (done.returncode, done.stderr) == (0, "")
        assert "\x1b" not in done.stdout
        assert [line.split()[0] for line in done.stdout.splitlines()[4:]] == [
            *("source", "museum", "broken", "busy", "flickr"),
        ]  # fmt: skip
    done = scrapy("top", "--interval", "0.5", "museum", "busy", "unheard-of")
    assert [line.split()[0] for line in done.stdout.splitlines()[4:]] == ["source", "museum", "busy", "unheard-of"]
    assert (
        done.stderr == "note: there is no source unheard-of; a name that appears only in seeds is not a source\n"
    )


async def test_json_is_the_line_of_the_monitor(scrapy: Scrapy, frontier: Frontier) -> None:
    await crawl(frontier)
    told = json.loads(scrapy("top", "--json", "--interval", "0.5").stdout)
    expected = shown(source("museum"))
    assert list(told) == list(expected.as_event())
    assert (told["event"], told["spider"]) == ("monitoring_update", "images")
    assert told["interval_s"] >= 0.5
    assert list(told["general"]) == list(expected.general)
    assert set(told["specific"]) == {"museum", "flickr", "busy", "broken"}
    for one in told["specific"].values():
        assert list(one) == list(expected.specific["museum"])

    some = json.loads(scrapy("top", "--json", "--interval", "0.5", "Museum").stdout)
    assert list(some["specific"]) == ["museum"]
    assert some["general"]["sources_listed"] == 1
    assert (some["general"]["sources"], some["general"]["outstanding"]) == (4, 8)


def shown(*sources: Any, **more: Any) -> Snapshot:
    """Return what happened within 10 s from nothing to `sources`."""
    return between(sample_at(1.0), sample_at(11.0, *sources, **more))


def rendered(made: Snapshot, width: int = 200, **more: Any) -> str:
    console = Console(width=width, **more)
    with console.capture() as captured:
        console.print(view("images of crawl", made, width=width))
    return captured.get()


def test_texts_of_strangers_are_shown_as_they_are_and_do_nothing() -> None:
    texts = ["[bold red]x[/]", ":bomb:", "a\x1b[2Jb\x07", "right\u202eleft", "two\nlines", "日本" * 3]
    made = shown(*(source(name, reason=f"[link=http://a]{name}") for name in texts),
                 pause=Pause("paused", "\x1b]0;owned\x07 [blink]full"))  # fmt: skip
    text = rendered(made)
    assert not any(char in text for char in "\x1b\x07\u202e")
    for name in ("[bold red]x[/]", ":bomb:", "a?[2Jb?", "right?left", "two?lines", "日本日本日本"):
        assert name in text
        assert f"[link=http://a]{name}" in text
    assert "NOTHING GOES OUT: ?]0;owned? [blink]full" in text


def test_wrong_use_and_no_redis_end_with_a_sentence(scrapy: Scrapy, tmp_path: Path) -> None:
    done = scrapy("top", "--interval", "0.1")
    assert (done.returncode, "--interval 0.1 must be a number of seconds" in done.stderr) == (2, True)
    done = scrapy("top", REDIS_URL=f"unix://{tmp_path}/none.sock")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "does not answer" in done.stderr
    said = scrapy("top", "--help")
    assert said.returncode == 0
    assert "Examples: scrapy top;" in " ".join(said.stdout.split())


@pytest.mark.parametrize(
    ("width", "omitted"), [(100, {"reason"}), (80, {"reason", "limit"}), (68, {"reason", "limit", "eta"})]
)
def test_a_narrow_terminal_has_fewer_columns_and_all_numbers(width: int, omitted: set[str]) -> None:
    names = ("museum", "a-library-whose-name-is-long.example")
    made = shown(*(source(name, reason="by size; slowed to 50 % by status 429", queued=123456) for name in names))
    whole, narrow = (rendered(made, most).splitlines()[4:] for most in (200, width))
    assert {*whole[0].split()} - {*narrow[0].split()} == omitted
    assert all("123456" in line for line in narrow[1:3])
    assert not any("…" in line.partition(" ")[2] for line in narrow)  # behind the name


def test_what_callbacks_yield_is_shown_for_other_spiders() -> None:
    made = shown(source("museum"))
    assert "items" not in rendered(made)
    assert "items" in rendered(replace(made, sample=replace(made.sample, spider="own")))
