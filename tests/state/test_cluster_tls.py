"""Shards of a Redis Cluster that wants TLS, a user and a password."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from benchmarks.ours import events_in
from crawlproject import plugins
from crawlproject.errors import RedisUnavailable
from crawlproject.state.client import State
from crawlproject.state.master import master_of
from demo.gallery import Gallery
from tests.conftest import Scrapy
from tests.state.conftest import certified
from tests.state.servers import OF_CRAWL, Cluster, Server, add_user, denied, opened, tls_options, tls_server
from tests.test_crawl import Crawl
from tests.waiting import until

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


def options_of(certificates: Path) -> str:
    """Return the part of a URL that has the CA and the client's certificate."""
    client = f"ssl_certfile={certificates}/certificate.pem&ssl_keyfile={certificates}/key.pem"
    return f"ssl_ca_certs={certificates}/ca.pem&{client}"


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
