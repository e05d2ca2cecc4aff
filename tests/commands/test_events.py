"""`scrapy events`: a file that grows by each event once, also when its writer is killed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject.state.keys import Keys
from crawlproject.state.shards import shard_namespace
from tests.conftest import Scrapy
from tests.following import following
from tests.state.servers import Server
from tests.streams.records import write
from tests.waiting import PATIENCE_S, until

KEYS = Keys("crawl", "images")


def emit(client: redis.Redis, first: int, last: int) -> None:
    for number in range(first, last):
        stream = KEYS.streams[number % 2]
        client.xadd(stream, {"event": json.dumps({"identifier": str(number)})})


def numbers(path: Path) -> list[int]:
    whole = path.read_text().split("\n")[:-1]  # the last line may be half written
    return sorted(int(json.loads(line)["identifier"]) for line in whole)


def until_it_holds(path: Path, count: int) -> None:
    until(lambda: path.exists() and path.read_bytes().count(b"\n") >= count)


def test_what_there_is_is_appended_each_time(scrapy: Scrapy, redis_url: str, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with redis.Redis.from_url(redis_url) as client:
        emit(client, 0, 3)
        done = scrapy("events", str(path))
        assert (done.returncode, done.stdout, done.stderr) == (0, f"3 events written to {path}\n", "")
        emit(client, 3, 5)
        assert scrapy("events", str(path)).stdout == f"2 events written to {path}\n"
        assert client.hlen(KEYS.readers) == 1
        assert scrapy("events", str(path), "--forget").returncode == 2  # which reader?
    assert numbers(path) == list(range(5))
    assert scrapy("events").returncode == 2


def test_readers_are_listed_and_forgotten_by_name(
    environment: dict[str, str], scrapy: Scrapy, redis_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "now.jsonl"
    with redis.Redis.from_url(redis_url) as client:
        assert scrapy("events", "--readers").stdout.endswith("\n0 readers\n")
        assert json.loads(scrapy("events", "--readers", "--json").stdout) == []
        emit(client, 0, 1200)
        write(client, "old:/data/x.jsonl", KEYS, last={KEYS.image_events: "0-0"})
        scrapy("events", str(tmp_path / "late.jsonl"), "--reader", "late")
        emit(client, 1200, 1203)
        with following(environment, str(path), "--reader", "now") as follower:
            until_it_holds(path, 1203)
            until(lambda: json.loads(scrapy("events", "--readers", "--json").stdout)[1]["behind"] == 0)
            listed = {one["name"]: one for one in json.loads(scrapy("events", "--readers", "--json").stdout)}
            table = scrapy("events", "--readers").stdout.splitlines()
            assert listed.keys() == {"old:/data/x.jsonl", "late", "now"}
            now = listed["now"]
            assert (now["reading"], now["host"], now["pid"]) == (True, socket.gethostname(), follower.pid)
            assert (now["output"], now["behind"]) == (str(path), 0)
            assert datetime.fromisoformat(now["since"]) <= datetime.fromisoformat(now["last_read"])
            assert now["positions"].keys() == set(KEYS.streams)
            assert (listed["late"]["reading"], listed["late"]["behind"]) == (False, 3)
            old = listed["old:/data/x.jsonl"]
            assert (old["reading"], old["behind"], old["host"], old["since"]) == (False, 602, None, None)
        assert len(table) == 5
        assert f"reading  {now['since'][:10]}" in table[2]

        done = scrapy("events", "--forget", "nobody")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "scrapy events: there is no reader nobody; known readers: late, now, old:/data/x.jsonl\n"
        )
        done = scrapy("events", "--forget", "old:/data/x.jsonl")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == (
            "reader old:/data/x.jsonl forgotten; 602 events that it had not read are no longer kept for it\n"
            f"  {KEYS.image_events}: it had read up to 0-0\n"
        )
        done = scrapy("events", "--forget", "late", "--json")
        assert json.loads(done.stdout) == {
            "forgotten": "late",
            "unread": 3,
            "positions": listed["late"]["positions"],
        }
        assert client.hkeys(KEYS.readers) == [b"now"]
    assert scrapy("events", "--readers", "x.jsonl").returncode == 2
    of_shop = scrapy("events", "--spider", "shop", "x.jsonl")
    assert of_shop.returncode == 2
    assert "a reader gets the events of all spiders" in of_shop.stderr
    for name in ("a b", "host:path"):
        assert f"--reader {name!r}: a name has 1 to 100" in scrapy("events", "x.jsonl", "--reader", name).stderr


def test_what_is_gone_unread_ends_a_reader_unless_it_may_skip_that(
    scrapy: Scrapy, redis_url: str, tmp_path: Path
) -> None:
    where = str(tmp_path / "x.jsonl")
    with redis.Redis.from_url(redis_url) as client:
        emit(client, 0, 20)
        assert scrapy("events", where, "--json").stdout == '{"events": 20, "skipped": 0}\n'
        emit(client, 20, 60)
        client.xtrim(KEYS.image_events, maxlen=5, approximate=False)
        for _ in range(2):
            done = scrapy("events", where)
            assert done.returncode == 1
            said = done.stderr.splitlines()[-1]
            assert said.startswith("scrapy events: gone from Redis before reader ")
            assert f"has read them: 15 events of {KEYS.image_events}" in said
            assert said.endswith("restore them, or go on without them (--skip-lost)")
        done = scrapy("events", where, "--skip-lost", "--json")
        told = f"scrapy events: lost, going on without them: 15 events of {KEYS.image_events}\n"
        assert (done.returncode, done.stderr, done.stdout) == (0, told, '{"events": 25, "skipped": 0}\n')
        emit(client, 60, 64)
        assert scrapy("events", where, "--json").stdout == '{"events": 4, "skipped": 0}\n'


@pytest.mark.parametrize("how", ["hangs", "killed"])
def test_a_follower_outlives_a_redis_that_fails(environment: dict[str, str], tmp_path: Path, how: str) -> None:
    path = tmp_path / "events.jsonl"
    server = Server(tmp_path, appendfsync="always")
    try:
        with following(environment | {"REDIS_URL": server.url}, str(path), in_haste=True) as follower:
            emit(server.client, 0, 100)
            until_it_holds(path, 100)
            if how == "hangs":
                server.process.send_signal(signal.SIGSTOP)
            else:
                server.kill()
            assert follower.stderr is not None
            told = [follower.stderr.readline()]
            with pytest.raises(subprocess.TimeoutExpired):  # and it stays, through further attempts
                follower.wait(3 if how == "hangs" else 2)
            if how == "hangs":
                server.process.send_signal(signal.SIGCONT)
            else:
                server.start()
            emit(server.client, 100, 200)
            until_it_holds(path, 200)
            told.append(follower.stderr.readline())
            follower.send_signal(signal.SIGTERM)
            out, err = follower.communicate(timeout=PATIENCE_S)
    finally:
        server.close()
    assert told == [
        "scrapy events: Redis does not answer, retrying until it does: start it, or check the network\n",
        "scrapy events: Redis answers again\n",
    ]
    assert (follower.returncode, out, err) == (0, f"200 events written to {path}\n", "")
    assert numbers(path) == list(range(200))


OF_SHARDS = [Keys(shard_namespace("crawl", number, 2), "images") for number in range(2)]


def emit_in(client: redis.Redis, shard: int, *numbers: int) -> None:
    for number in numbers:
        client.xadd(OF_SHARDS[shard].image_events, {"event": json.dumps({"identifier": str(number)})})


def test_a_shard_that_is_away_holds_up_no_other(
    environment: dict[str, str], scrapy: Scrapy, tmp_path: Path
) -> None:
    path = tmp_path / "events.jsonl"
    files = [tmp_path / f"events.{shard:02d}.jsonl" for shard in range(2)]
    servers = [Server(tmp_path, appendfsync="always") for _ in range(2)]
    several: Any = {"REDIS_URL": " ".join(server.url for server in servers), "CRAWL_SHARDS": "2"}
    try:
        with following(environment | several, str(path), in_haste=True) as follower:
            emit_in(servers[0].client, 0, *range(10))
            emit_in(servers[1].client, 1, *range(10))
            for file in files:
                until_it_holds(file, 10)
            servers[1].kill()
            assert follower.stderr is not None
            told = "scrapy events: shard 1 of 2: Redis does not answer, retrying until it does: "
            assert follower.stderr.readline().startswith(told)
            emit_in(servers[0].client, 0, *range(10, 20))
            until_it_holds(files[0], 20)
            follower.send_signal(signal.SIGTERM)
            assert follower.wait(PATIENCE_S) == 0
        done = scrapy("events", str(path), **several)
        assert (done.returncode, done.stdout) == (1, "")
        assert "shard 1 of 2 does not answer" in done.stderr
        assert "its events are still to be read: run this again when it does" in done.stderr
        with following(environment | several, str(path), in_haste=True) as follower:  # it begins without
            assert follower.stderr is not None
            assert "shard 1 of 2: Redis does not answer" in follower.stderr.readline()
            emit_in(servers[0].client, 0, 20)
            until_it_holds(files[0], 21)
            servers[1].start()
            emit_in(servers[1].client, 1, *range(10, 20))
            assert follower.stderr.readline() == "scrapy events: shard 1 of 2: Redis answers again\n"
            until_it_holds(files[1], 20)
            follower.send_signal(signal.SIGTERM)
            assert follower.wait(PATIENCE_S) == 0
    finally:
        for server in servers:
            server.close()
    assert [numbers(file) for file in files] == [list(range(21)), list(range(20))]
