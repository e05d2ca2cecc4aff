"""`scrapy feed`: files into the seed list, and a word on what was none."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
import redis
from pyarrow import parquet as pq

from crawlproject.state.keys import Keys
from tests.conftest import Scrapy
from tests.following import running
from tests.waiting import PATIENCE_S, until

KEYS = Keys("crawl", "images")
A, B, C = (f"https://museum.org/{name}.jpg" for name in "abc")


def seeds(url: str) -> list[str]:
    """Return the seeds in the order in which they are read."""
    with redis.Redis.from_url(url) as client:
        return [seed.decode() for seed in reversed(client.lrange(KEYS.seeds, 0, -1))]


def test_what_can_be_read_goes_in_and_the_rest_is_listed_by_file_and_line(
    scrapy: Scrapy, redis_url: str, tmp_path: Path
) -> None:
    tsv, jsonl = tmp_path / "museum.tsv", tmp_path / "more.jsonl.gz"
    tsv.write_text(f"identifier\turl\tsource\n1\t{A}\tMuseum\n\n2\tftp://museum.org/x\t\n3\tmuseum.org/b.jpg\t\n")
    jsonl.write_bytes(gzip.compress(f'{{"url": "{C}"}}\n{{"uuid": "4"}}\nnotaurl\n'.encode()))
    done = scrapy("feed", str(tsv), str(jsonl), "-", stdin=f"{A}\nhttp://a b/\n")
    assert done.returncode == 0
    assert done.stdout == "4 seeds fed, 4 rejected\n"
    told = done.stderr.splitlines()
    assert [line.partition(": ")[0] for line in told] == [f"{tsv}:4", f"{jsonl}:2", f"{jsonl}:3", "-:2"]
    assert "must begin with http" in told[0]
    assert "no URL" in told[1]
    assert told[2].endswith("not a URL: 'notaurl' begins neither with http:// nor with a host name")
    assert "spaces" in told[3]
    assert [json.loads(seed) if seed[0] == "{" else seed for seed in seeds(redis_url)] == [
        {"url": A, "identifier": "1", "source": "Museum"},
        {"url": "http://museum.org/b.jpg", "identifier": "3"},
        C,
        A,
    ]


def test_a_pipe_is_read_once(scrapy: Scrapy, redis_url: str) -> None:
    done = scrapy("feed", "/dev/stdin", stdin=f"{A}\n{B}\n")  # as <(a command) of a shell
    assert done.stdout == "2 seeds fed, 0 rejected\n", done.stderr
    assert seeds(redis_url) == [A, B]


def test_on_a_terminal_its_progress_is_shown(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "seeds").write_text(f"{A}\n{B}\n")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "scrapy", "feed", str(tmp_path / "seeds")]
    done = subprocess.run(
        command, env=environment | {"TERM": "xterm"}, stdout=subprocess.PIPE, stderr=theirs, check=True
    )
    os.close(theirs)
    assert done.stdout == b"2 seeds fed, 0 rejected\n"
    shown = os.read(ours, 65_536)
    os.close(ours)
    assert b"feeding" in shown
    assert b"100%" in shown


def test_columns_that_nothing_takes_are_named_and_those_to_keep_may_be_renamed(
    scrapy: Scrapy, redis_url: str, tmp_path: Path
) -> None:
    table = tmp_path / "laion.tsv"
    table.write_text(f"URL\tTEXT\tLICENSE\tkey\n{A}\tA museum\tby\tk\n")
    done = scrapy("feed", str(table), "--keep", "license=LICENSE")
    assert (
        done.stderr
        == "note: ignored: TEXT, key; --keep copies them into events, --columns maps them to keys of the seed\n"
    )
    assert json.loads(seeds(redis_url)[0]) == {"url": A, "extra": {"license": "by"}}


def test_no_key_of_a_seed_in_json_lines_is_called_ignored(scrapy: Scrapy, tmp_path: Path) -> None:
    lines = tmp_path / "more.jsonl"
    lines.write_text(json.dumps({"url": A, "uuid": "1", "extra": {"album": 3}}))
    assert scrapy("feed", str(lines)).stderr == ""
    lines.write_text(json.dumps({"url": A, "extra": {"album": 3}, "title": "A"}))
    assert scrapy("feed", str(lines)).stderr.startswith("note: ignored: title; ")


def test_it_fails_with_a_sentence(scrapy: Scrapy, redis_url: str, tmp_path: Path) -> None:
    good, bad, broken = (tmp_path / name for name in ("good", "bad", "broken.gz"))
    good.write_text(A)
    bad.write_text("ftp://a/\n{\n")
    broken.write_bytes(gzip.compress(b"x" * 1000)[:-3])

    done = scrapy("feed", str(bad))
    assert (done.returncode, done.stdout) == (1, "0 seeds fed, 2 rejected\n")

    # looked for before anything is fed
    done = scrapy("feed", str(good), str(tmp_path / "missing"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("scrapy feed: ")
    assert "missing" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert seeds(redis_url) == []

    done = scrapy("feed", str(broken), str(good))
    assert (done.returncode, done.stdout) == (1, "0 seeds fed, 0 rejected\n")
    assert done.stderr == (
        f"scrapy feed: {broken} is damaged or cut short: "
        "Compressed file ended before the end-of-stream marker was reached\n"
    )

    done = scrapy("feed")
    assert done.returncode == 2
    assert "expected at least one FILE" in done.stdout + done.stderr


def test_it_says_which_source_has_enough_and_feeds_it_when_there_is_room(
    environment: dict[str, str], redis_url: str
) -> None:
    with redis.Redis.from_url(redis_url) as client:
        overflow = f"{KEYS.overflow_of}0:museum.org"
        client.rpush(overflow, *["x"] * 5)
        client.hset(KEYS.counters, "overflow", 5)
        with running(environment | {"CRAWL_OVERFLOW_MAXLEN": "10"}, "feed", "-") as feed:
            assert feed.stdin is not None
            assert feed.stderr is not None
            feed.stdin.write(f"{A}\n")
            feed.stdin.close()
            said = "scrapy feed: waiting: museum.org has enough seeds waiting: see scrapy sources museum.org\n"
            assert feed.stderr.readline() == said
            assert client.llen(KEYS.seeds) == 0
            client.lpop(overflow)
            assert feed.wait(PATIENCE_S) == 0
    assert seeds(redis_url) == [A]


KEPT = ("--columns", "url=URL,uuid=key", "--keep", "TEXT")


def table(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "URL": [f"https://museum.org/{number}" for number in numbers],
            "key": [str(number) for number in numbers],
            "TEXT": [f"picture {number}" for number in numbers],
        }
    )


def broken_off(environment: dict[str, str], redis_url: str, *arguments: str, at_least: int = 1_000) -> int:
    """Kill a feed when so many seeds are fed; return how many are."""
    with redis.Redis.from_url(redis_url) as client:
        with running(environment, "feed", *arguments):
            until(lambda: client.llen(KEYS.seeds) >= at_least)
        fed: int = client.llen(KEYS.seeds)
    return fed


def test_a_killed_feed_is_resumed_exactly(
    scrapy: Scrapy, environment: dict[str, str], redis_url: str, tmp_path: Path
) -> None:
    for number in range(3):
        rows = table(number * 4_500, (number + 1) * 4_500)
        pq.write_table(rows, tmp_path / f"{number}.parquet", row_group_size=2_000)
    arguments = (f"{tmp_path}/*.parquet", *KEPT)
    broken_off(environment, redis_url, *arguments)
    fed = broken_off(environment, redis_url, *arguments, "--resume", at_least=5_000)
    done = scrapy("feed", *arguments, "--resume")
    assert done.stdout == f"{13_500 - fed} seeds fed, 0 rejected\n"
    assert "note: continuing after row" in done.stderr or fed == 13_500
    assert [json.loads(seed)["uuid"] for seed in seeds(redis_url)] == [str(n) for n in range(13_500)]
    done = scrapy("feed", *arguments, "--resume")
    assert (done.stdout, done.stderr) == ("0 seeds fed, 0 rejected\n", "note: these files have been fed already\n")


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--spider", "image", "-"), "--spider image: this project has no such spider, only images"),
        (("-", "--resume"), "--resume needs FILEs: stdin and pipes begin where they begin"),
        (
            ("a.csv", "--columns", "link=URL"),
            "--columns 'link=URL': expected KEY=COLUMN, each key once, of url, uuid",
        ),
    ],
)
def test_options_that_cannot_be_used_are_refused(scrapy: Scrapy, args: tuple[str, ...], reason: str) -> None:
    done = scrapy("feed", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
