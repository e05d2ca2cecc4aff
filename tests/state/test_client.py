"""The connection to Redis: which server, and the messages when it fails."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import redis
import redis.asyncio

from crawlproject import config
from crawlproject.errors import ConfigError, RedisUnavailable
from crawlproject.state import embedded, health
from crawlproject.state.client import State, check_redis, crawl_dir, redis_urls
from crawlproject.state.health import QUIET_S, Health, fault_of, plain
from tests.conftest import Scrapy
from tests.monitors import ports
from tests.state.servers import Cluster, Server


def open_and_close(url: str) -> None:
    async def main() -> None:
        state = State(config.load({"REDIS_URL": url}), "images")
        await state.open()
        await state.close()

    asyncio.run(main())


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as bound:  # bound and not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://user:s@cret@127.0.0.1:{port}", "127.0.0.1:{port}"),
        ("redis://127.0.0.1:{port}/0?password=secret", "127.0.0.1:{port}/0"),
        ("unix:///nowhere/redis.sock?db=1&password=secret", "/nowhere/redis.sock"),
        ("redis://127.0.0.1:{port}/?socket_timeout=soon", "127.0.0.1:{port}/"),
    ],
)
def test_an_unreachable_redis_is_reported_in_a_sentence_without_secrets(
    url: str, place: str, closed_port: int
) -> None:
    with pytest.raises(RedisUnavailable) as caught:
        open_and_close(url.format(port=closed_port))
    message = str(caught.value)
    assert message.startswith("Redis at ")
    assert f"{place.format(port=closed_port)} does not answer (" in message
    assert message.endswith("start it, or correct REDIS_URL.")
    assert "cret" not in message
    assert "\n" not in message


def test_a_wrong_password_is_reported_without_it(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.acl_setuser("nobody", enabled=True, passwords=["+right"])
        try:
            with pytest.raises(RedisUnavailable) as caught:
                open_and_close(redis_url.replace("unix://", "unix://nobody:secret@"))
        finally:
            client.acl_deluser("nobody")
    assert "secret" not in str(caught.value)
    assert "does not answer (" in str(caught.value)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ({"redis_version": "6.2.14"}, "6.2.14"),
        (redis.ResponseError("unknown command `HELLO`, with args beginning with: `3`,"), "older than 6.0"),
    ],
)
def test_an_old_redis_is_refused(redis_url: str, monkeypatch: pytest.MonkeyPatch, said: Any, version: str) -> None:
    monkeypatch.setattr(redis.asyncio.Redis, "info", AsyncMock(side_effect=[said]))
    with pytest.raises(
        RedisUnavailable, match=f" is {version}, and 7.0 or newer is needed: upgrade it, or run Valkey"
    ):
        open_and_close(redis_url)


def test_without_a_url_a_server_of_the_project_folder_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scrapy.cfg").touch()
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    assert redis_urls(config.load({"REDIS_URL": "redis://elsewhere/3"})) == ("redis://elsewhere/3",)
    assert crawl_dir() == tmp_path / ".crawl"
    assert not crawl_dir().exists()
    try:
        open_and_close("")
        assert (tmp_path / ".crawl" / "redis.log").exists()
    finally:
        assert embedded.stop(tmp_path / ".crawl")


def test_a_redis_that_may_evict_is_refused_at_the_start(server: Server, scrapy: Scrapy) -> None:
    server.client.config_set("maxmemory-policy", "allkeys-lru")
    for command in (("crawl", "images"), ("monitor",)):
        done = scrapy(*command, REDIS_URL=server.url, **ports())
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1] == (
            f"scrapy {command[0]}: Redis at {server.url} may evict keys of the crawl "
            "(maxmemory-policy allkeys-lru): set it to noeviction"
        )
    assert scrapy("stats", REDIS_URL=server.url).returncode == 0  # operators are let in
    server.client.config_set("maxmemory-policy", "noeviction")
    asyncio.run(check_redis(config.load({"REDIS_URL": server.url})))


@pytest.mark.parametrize("shards", [1, 2])
def test_a_worker_ends_with_a_sentence_if_redis_fails_while_it_joins(
    server: Server, scrapy: Scrapy, shards: int
) -> None:
    user: Any = {"keys": ["*"], "categories": ["+@all"], "commands": ["-fcall"]}
    server.client.acl_setuser("reader", enabled=True, passwords=["+secret"], **user)
    denied = server.url.replace("redis://", "redis://reader:secret@")
    urls = [*[server.url] * (shards - 1), denied]  # the first of two shards has no fault
    done = scrapy(
        *("crawl", "images"),
        REDIS_URL=" ".join(urls),
        CRAWL_SHARDS=str(shards),
        CRAWL_SHARD=",".join(map(str, range(shards))),
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"scrapy: Redis at {server.url.removeprefix('redis://')} does not answer (User reader has no permissions "
        "to run the 'fcall' command): give this user the rights that docs/deploy.md names."
    )
    assert "Traceback" not in done.stderr


async def test_each_master_of_a_cluster_is_asked_whether_it_may_evict(cluster: Cluster, cluster_url: str) -> None:
    settings = config.load({"REDIS_URL": cluster_url, "CRAWL_SHARDS": "4"})
    await check_redis(settings)
    for node in cluster.masters():
        node.client.config_set("maxmemory-policy", "allkeys-lfu")
        try:
            with pytest.raises(ConfigError, match=r"may evict keys of the crawl \(maxmemory-policy allkeys-lfu\)"):
                await check_redis(settings)
        finally:
            node.client.config_set("maxmemory-policy", "noeviction")


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Clock:
    caplog.set_level(logging.INFO)
    one = Clock()
    monkeypatch.setattr(health, "time", one)
    return one


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "raise maxmemory"),
        (redis.ReadOnlyError("You can't write against a read only replica."), "point REDIS_URL at the master"),
        (redis.exceptions.NoPermissionError("this user has no permissions"), "rights that docs/deploy.md names"),
        (redis.ResponseError("BUSY Redis is busy running a script."), "function kill"),
        (redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"), "cannot write to its disk"),
        (redis.ConnectionError("Connection refused"), "does not answer"),
        (redis.ResponseError("WRONGTYPE crawl:slots is a string, not a zset: rename it"), "crawl:slots is"),
        (redis.ResponseError("ERR unknown"), "Redis fails, retrying until it recovers: ERR unknown"),
        # what stands in the way of a connection
        (redis.ConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"), "ssl_ca_certs=FILE"),
        (redis.ConnectionError("IP address mismatch, certificate is not valid for '::1'"), "hostname=false"),
        (redis.ConnectionError("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert"), "ssl_keyfile=FILE"),
        (redis.ConnectionError("invalid username-password pair or user is disabled."), "the user and password"),
    ],
)
def test_each_fault_has_its_sentence(error: Exception, words: str) -> None:
    assert words in fault_of(error)
    assert "secret" not in fault_of(error) + plain(error)
    assert "\n" not in plain(error)


@pytest.mark.parametrize(
    "added",
    [
        "script: 9d0f0ae7ae4b6f4a2e5b0f1c9e4c1d2b3a4f5e6d, on @user_script:95.",  # Redis
        "script: on @user_script:95.",  # Valkey
    ],
)
def test_what_is_added_to_errors_of_scripts_is_left_out(added: str) -> None:
    assert plain(redis.ResponseError(f"WRONGTYPE a is a list {added}")) == "WRONGTYPE a is a list"


def test_a_fault_is_logged_once_and_so_is_its_end(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    one = Health()
    one.answered()
    for port in range(5):
        one.failed(redis.ConnectionError(f"Connection from port {port} refused"))
        clock.now += 1
        one.answered()  # other calls succeed
    clock.now += QUIET_S - 1.5
    one.answered()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    clock.now += 1
    for _ in range(3):
        one.answered()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "port 0" in caplog.records[0].message
    assert "answers again; over after 4 s: Redis does not answer" in caplog.records[1].message
    one.failed(redis.ConnectionError("gone again"))
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]


def test_faults_are_distinguished_and_bounded(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    one = Health()
    for number in range(100):
        for error in (redis.ConnectionError("gone"), redis.OutOfMemoryError("not allowed")):
            one.failed(error)
        assert number or len(caplog.records) == 2
        one.failed(redis.ResponseError(f"ERR {number}"))
    assert len(caplog.records) == 16
