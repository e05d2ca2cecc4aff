"""A Redis Cluster: the node of the crawl's slot is found, lost, and found again elsewhere."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from redis.crc import key_slot

from benchmarks.ours import events_in
from crawlproject import config, plugins
from crawlproject.config import MasterAddress
from crawlproject.errors import ConfigError, RedisUnavailable
from crawlproject.state.client import State
from crawlproject.state.health import fault_of
from crawlproject.state.keys import Keys
from crawlproject.state.master import Master, master_of
from crawlproject.streams.readers import StreamReader
from demo.gallery import Gallery
from tests.conftest import Scrapy
from tests.state.calls.calls import db, join
from tests.state.conftest import certified
from tests.state.servers import (
    OF_CRAWL,
    Cluster,
    Server,
    add_user,
    denied,
    opened,
    options_of,
    tls_options,
    tls_server,
)
from tests.test_crawl import Crawl
from tests.waiting import PATIENCE_S, until, until_async

KEYS = Keys("{crawl}", "images")


@pytest.mark.parametrize(
    ("given", "tag"), [({}, "{crawl}"), ({"CRAWL_NAMESPACE": "b"}, "{b}"), ({"CRAWL_NAMESPACE": "{b}"}, "{b}")]
)
def test_all_keys_of_a_crawl_on_a_cluster_have_one_hash_tag(given: dict[str, str], tag: str) -> None:
    assert config.load({"REDIS_URL": "redis+cluster://a", **given}).namespace == tag
    assert config.load({"REDIS_URL": "redis://a", **given}).namespace == given.get("CRAWL_NAMESPACE", "crawl")


@pytest.mark.parametrize("name", ["{}", "a{b}"])
def test_a_namespace_without_one_hash_tag_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match="must be a name without braces on a Redis Cluster"):
        config.load({"REDIS_URL": "redis+cluster://a", "CRAWL_NAMESPACE": name})


async def test_one_redis_is_no_cluster(redis_url: str, server: Server) -> None:
    with pytest.raises(RedisUnavailable, match="cluster support disabled"):
        await opened(f"redis+cluster://127.0.0.1:{server.port}")


async def test_a_node_of_a_cluster_is_not_taken_for_the_one_redis(cluster: Cluster) -> None:
    with pytest.raises(RedisUnavailable, match=r"a node of a Redis Cluster: set REDIS_URL to redis\+cluster://"):
        await opened(cluster.nodes[0].url)


async def test_a_slot_is_followed_to_another_master(cluster: Cluster, cluster_url: str) -> None:
    state = await opened(cluster_url)
    assert await state.scripts.lead("leader", ready=True) == 1
    assert await db(state).lpush(KEYS.seeds, *range(50)) == 50
    rates = {f"{KEYS.override_rate_of}source-{number}": number for number in range(50)}
    await db(state).mset(rates)
    source = cluster.owner_of(KEYS.seeds)
    faults: list[str] = []

    async def keep_calling() -> None:
        while True:
            try:
                await db(state).mget(*rates)
            except redis.ConnectionError as error:
                faults.append(str(error))
            await asyncio.sleep(0.01)

    calling = asyncio.create_task(keep_calling())

    def half_moved() -> None:
        until(lambda: faults)

    target = await asyncio.to_thread(cluster.move_slot, KEYS.seeds, half_moved)
    calling.cancel()
    assert target is not source
    assert faults[0].startswith(("ASK", "TRYAGAIN"))
    assert await db(state).llen(KEYS.seeds) == 50
    assert await state.scripts.lead("leader", ready=True) == 1
    assert await db(state).lpush(KEYS.seeds, "more") == 51  # the call to the former node is repeated, once
    assert await db(state).get(f"{KEYS.override_rate_of}source-49") == b"49"
    assert leader_of(state) == ("127.0.0.1", target.port)
    await state.close()


async def test_no_script_does_half_of_its_work_while_the_slot_is_moved(cluster: Cluster, cluster_url: str) -> None:
    state = await opened(cluster_url)
    await join(state)
    source = cluster.owner_of(KEYS.seeds)
    before = contents(source)
    assert before
    target = next(node for node in cluster.masters() if node is not source)
    slot = key_slot(b"crawl")
    target.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", cluster.id_of(source))
    source.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.id_of(target))
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "take_seeds": lambda: state.scripts.take_seeds("w", 10),
        "heartbeat": lambda: state.scripts.heartbeat("w", join=False, timeout=30, max_deliveries=3),
        "leave": lambda: state.scripts.leave("w"),
    }
    for name, call in calls.items():
        with pytest.raises(redis.ConnectionError, match=r"ASK|TRYAGAIN"):
            await call()
        assert contents(source) == before, name
        assert contents(target).keys().isdisjoint(before), name
    source.client.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
    target.client.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
    assert (await state.scripts.heartbeat("w", join=False, timeout=30, max_deliveries=3)).alive
    await state.close()


def contents(server: Server) -> dict[bytes, bytes]:
    """Return what a node has, packed."""
    return {key: server.client.dump(key) for key in server.client.scan_iter()}


async def test_a_master_that_hangs_is_left_for_its_replica(cluster: Cluster, cluster_url: str) -> None:
    settings = config.load({"REDIS_URL": cluster_url})
    state, idle = (State(settings, "images", timeout=5) for _ in range(2))
    await state.open()
    await idle.open()
    assert await state.scripts.lead("leader", ready=True) == 1
    master = cluster.owner_of(KEYS.seeds)
    other = ("127.0.0.1", cluster.replica_of(master).port)
    assert master.client.persist(KEYS.leader)  # however long the replica takes, it is the same term
    until(lambda: master.client.wait(1, 1000))
    master.process.send_signal(signal.SIGSTOP)
    try:
        assert await until_async(lambda: state.scripts.lead("leader", ready=True), despite=redis.RedisError) == 1
        assert leader_of(state) == other
    finally:
        master.process.send_signal(signal.SIGCONT)
    # One that has called nothing meanwhile hears of it from the master, as soon as that knows.
    await until_async(lambda: leads_where(idle, other))
    await idle.close()
    await state.close()
    until(cluster.is_whole)


async def leads_where(state: State, address: tuple[str, int]) -> bool:
    with suppress(redis.RedisError):
        await state.scripts.lead("leader", ready=True)
    return leader_of(state) == address


def leader_of(state: State) -> tuple[str, int] | None:
    """Return the node that the client leads to."""
    master = master_of(state.redis)
    assert master is not None
    return master.address


async def test_events_are_read_when_a_replica_has_them(cluster: Cluster, cluster_url: str) -> None:
    state = await opened(cluster_url)
    reader = StreamReader(state, "file", "a file")
    await reader.take()
    with standing_replica(cluster) as master:
        master.client.xadd(KEYS.link_rot_events, {"event": "{}"})
        with pytest.raises(redis.RedisError, match="no replica has confirmed") as caught:
            await reader.read()
        assert "seeds and events wait for it" in fault_of(caught.value)
    assert len(await until_async(reader.read, despite=redis.RedisError)) == 1
    await state.close()


@contextmanager
def standing_replica(cluster: Cluster) -> Iterator[Server]:
    """Have the replica of the crawl's master stand still; the value is that master."""
    master = cluster.owner_of(KEYS.seeds)
    replica = cluster.replica_of(master).process
    replica.send_signal(signal.SIGSTOP)
    try:
        yield master
    finally:
        replica.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("waits", ["forwarded", "all"])
async def test_workers_wait_until_a_replica_has_all_if_they_are_to(
    cluster: Cluster, cluster_url: str, waits: str
) -> None:
    state = await opened(cluster_url, CRAWL_REDIS_WAIT=waits)
    lead = partial(state.scripts.lead, "leader", ready=True)
    with standing_replica(cluster) as master:
        if waits == "all":
            with pytest.raises(redis.RedisError, match="no replica has confirmed lead within 1000 ms"):
                await lead()
        else:
            assert await lead() == 1
        assert master.client.get(KEYS.leader) == b"leader"  # as with a lost answer
    assert await until_async(lead, despite=redis.RedisError) == 1
    await state.close()


async def test_a_name_that_hangs_holds_up_nothing(
    cluster: Cluster, cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, woken = socket.getaddrinfo, threading.Event()

    def slow(host: str, *args: Any, **options: Any) -> Any:
        if host == "redis-3":
            woken.wait(PATIENCE_S)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return look_up(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    slot = Master(MasterAddress((("redis-3", 6379), ("127.0.0.1", cluster.nodes[1].port))), "{crawl}")
    slot.point(("redis-3", 6379))
    began = time.monotonic()
    try:
        assert await slot.find()
        assert time.monotonic() < began + PATIENCE_S / 2
    finally:
        woken.set()


async def test_a_name_that_cannot_be_one_is_named() -> None:
    with pytest.raises(RedisUnavailable, match=r"node\.\.example is no name of a host"):
        await opened("redis+cluster://node..example:7000")


OF_NODES = "of-nodes"


def secured_by(folder: Path, certificates: Path) -> Cluster:
    """Return a cluster that speaks TLS only, and wants client certificates and a password."""
    tls = tls_options(certificates) | {"tls_cluster": "yes"}
    return Cluster(folder, tls=tls, password=OF_NODES, program=tls_server())


@pytest.fixture
def secured(tmp_path: Path, certificates: Path) -> Iterator[Cluster]:
    """Such a cluster, whose certificates are for its address."""
    with closing(secured_by(tmp_path, certificates)) as one:
        yield one


def url_as_user(node: Server, options: str, host: str = "127.0.0.1") -> str:
    return f"rediss+cluster://crawl:{quote(OF_CRAWL, safe='')}@{host}:{node.port}?{options}"


async def test_who_may_not_is_told_why(secured: Cluster, certificates: Path, tmp_path: Path) -> None:
    add_user(*secured.nodes)
    place = f"127.0.0.1:{secured.nodes[1].port}"
    good = options_of(certificates)
    ours, _, client = good.partition("&")
    other = f"ssl_ca_certs={certified(tmp_path / 'other', '127.0.0.1')}/ca.pem"
    for bad, told in (
        (f"redis+cluster://crawl:{quote(OF_CRAWL, safe='')}@{place}", "start it, or correct REDIS_URL"),
        (url_as_user(secured.nodes[1], f"{other}&{client}"), "name the CA that has signed its certificate"),
        (url_as_user(secured.nodes[1], ours), ""),  # the server may close before its client knows why
        (f"rediss+cluster://crawl:of-others@{place}?{good}", "correct the user and password in REDIS_URL"),
    ):
        with pytest.raises(RedisUnavailable, match="no node of the cluster knows the master") as caught:
            await opened(bad, CRAWL_SHARDS=4)
        assert told in str(caught.value)
        assert "of-" not in str(caught.value)
        assert "of@" not in str(caught.value)


async def test_nodes_are_reached_by_the_names_in_their_certificates(tmp_path: Path) -> None:
    files = certified(tmp_path / "tls", "localhost")
    with closing(secured_by(tmp_path, files)) as cluster:
        add_user(*cluster.nodes)
        url = url_as_user(cluster.nodes[1], options_of(files), "localhost")
        with pytest.raises(RedisUnavailable, match=r"another name: .* \(cluster-announce-hostname"):
            await opened(url, CRAWL_SHARDS=4)
        for node in cluster.nodes:
            node.client.config_set("cluster-announce-hostname", "localhost")
            node.client.config_set("cluster-preferred-endpoint-type", "hostname")
        until(lambda: knows_names(cluster))
        state = await opened(url, CRAWL_SHARDS=4)
        for shard in state.shards:
            assert await shard.scripts.lead("leader", ready=True) == 1
        assert {owner_of(shard)[0] for shard in state.shards} == {"localhost"}
        shard = state.shards[2]
        target = cluster.move_slot(shard.keys.leader)
        assert await shard.scripts.lead("leader", ready=True) == 1
        assert owner_of(shard) == ("localhost", target.port)
        await state.close()


def owner_of(shard: State) -> tuple[str, int]:
    """Return where its client finds a shard."""
    master = master_of(shard.redis)
    assert master is not None
    assert master.address is not None
    return master.address


def knows_names(cluster: Cluster) -> bool:
    """Tell whether each node gives the names of all."""
    told = [node.client.execute_command("CLUSTER", "SLOTS") for node in cluster.nodes]
    return all(str(one).count("localhost") >= 6 for one in told)


@pytest.mark.slow
def test_a_crawl_as_a_user_with_no_more_rights_than_it_needs(
    cluster: Cluster, cluster_url: str, tmp_path: Path, environment: dict[str, str], scrapy: Scrapy
) -> None:
    add_user(*cluster.nodes)
    url = cluster_url.replace("://", f"://crawl:{quote(OF_CRAWL, safe='')}@")
    shared: dict[str, Any] = {"REDIS_URL": url, "CRAWL_SHARDS": "4"}
    crawl = Crawl(tmp_path, environment | shared, cluster.nodes[0].url)
    museums = [f"museum-{number}" for number in range(9)]
    for museum in museums:
        crawl.source(museum, 20, pictures=10)
    with ExitStack() as ending, Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as gallery:
        ending.callback(crawl.stop)
        rows = [
            {"url": f"{gallery.urls[museum]}/{n}.jpg", "source": museum} for museum in museums for n in range(10)
        ]
        fed = scrapy("feed", "-", stdin="\n".join(map(json.dumps, rows)), **shared)
        assert fed.returncode == 0, fed.stderr
        crawl.run(4)
    assert not re.search(r"Traceback|Bug in| ERROR: ", "".join(map(crawl.log, range(4))))
    events = tmp_path / "events.jsonl"
    for command in (
        "shards",
        "sources",
        "stats",
        "halt museum-1",
        "resume museum-1",
        "rate museum-1 2",
        "top --interval 1 --json",
        "explain museum-1",
        *(["report museum-1"] if "report" in plugins.found() else []),
        "exclude museum.example",
        "excluded",
        "include museum.example",
        "dead list",
        "events --readers",
        f"events {events}",
    ):
        assert scrapy(*command.split(), **shared).returncode == 0, command
    assert len([event for event in events_in(events) if "identifier" in event]) == 90
    assert denied(*cluster.nodes) == set()
