"""A crawl is divided on servers as people run them: sentinels, TLS, users with few rights, two versions."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject.errors import CrawlprojectError, RedisUnavailable
from crawlproject.frontier import division
from crawlproject.state import embedded
from crawlproject.state.client import BlockingState
from crawlproject.state.reshard_copy import Division
from tests.state.dividing import ALL, Before, crawl_of, end_some, fill, fill_closed, urls_of_all
from tests.state.servers import Cluster, Pair, Server, tls_options, tls_server
from tests.waiting import until


async def divided(before: Before) -> division.Divided:
    """Divide a crawl of all requests, some of which have ended; check that the others are there once."""
    crawl = await crawl_of(before)
    await fill(crawl)
    ended = await end_some(crawl, 30)
    await crawl.close()
    done = await before.divide()
    assert (done.requests, done.events, done.dead_letters) == (240 - ended, ended, ended // 2)
    after = await before.open()
    found = await urls_of_all(after)
    assert set(found.values()) == {1}
    assert found.total() == done.requests
    await after.close()
    return done


async def test_one_behind_sentinels(pair: Pair, cluster: Cluster, cluster_url: str) -> None:
    assert cluster_url
    await divided(Before(pair.url, cluster))


async def test_one_behind_sentinels_whose_master_is_replaced_meanwhile(
    pair: Pair, cluster: Cluster, cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks off: on another server a scan leaves out keys. Begun anew, all is there."""
    assert cluster_url
    before = Before(pair.url, cluster)
    await fill_closed(before)
    copy = Division._copy
    killed: list[Server] = []

    def has_taken_over() -> bool:
        with suppress(RedisUnavailable), BlockingState.connect(before.config, divides=True) as state:
            return bool(state.redis.info("replication")["role"] == "master")
        return False

    def copy_and_kill(self: Division, name: str, spider: str, keys: list[bytes]) -> None:
        copy(self, name, spider, keys)
        if name == "queue_of" and not killed:
            pair.master.kill()
            killed.append(pair.master)
            until(has_taken_over)

    with monkeypatch.context() as patched:
        patched.setattr(Division, "_copy", copy_and_kill)
        with pytest.raises(CrawlprojectError, match="the Redis of REDIS_URL was restarted or replaced meanwhile"):
            await before.divide()
    await before.divide()
    after = await before.open()
    assert await urls_of_all(after) == ALL
    await after.close()


async def test_one_over_tls_to_a_cluster_over_tls(tmp_path: Path, certificates: Path) -> None:
    tls, program = tls_options(certificates), tls_server()
    options = "&".join(
        f"ssl_{name}={certificates}/{file}.pem"
        for name, file in {"ca_certs": "ca", "certfile": "certificate", "keyfile": "key"}.items()
    )
    with (
        closing(Server(tmp_path, tls=tls, password="of-server", program=program)) as one,
        closing(
            Cluster(tmp_path, tls=tls | {"tls_cluster": "yes"}, password="of-nodes", program=program)
        ) as cluster,
    ):
        before = Before(f"rediss://:of-server@127.0.0.1:{one.port}/0?{options}", cluster)
        before.to(f"rediss+cluster://:of-nodes@127.0.0.1:{cluster.nodes[1].port}?{options}")
        done = await divided(before)
        assert done.left == 0
        noted: Any = one.client.hget("crawl:layout", "at")
        assert b"of-" not in noted


async def test_users_with_few_rights(tmp_path: Path) -> None:
    """Those that docs/deploy.md gives, to fewer keys; what is missing is named before anything is begun."""
    rights = "on >secret ~crawl:* ~{crawl* ~images:* ~pages:* +@all -@dangerous +info +sort"
    with closing(Server(tmp_path)) as one, closing(Cluster(tmp_path)) as cluster:

        def allow(servers: Iterable[Server], *more: str) -> None:
            for server in servers:
                server.client.execute_command("ACL", "SETUSER", "crawl", *rights.split(), *more)

        allow([one])
        allow(cluster.nodes, "+cluster")
        before = Before(f"redis://crawl:secret@127.0.0.1:{one.port}/0", cluster)
        before.to(f"redis+cluster://crawl:secret@127.0.0.1:{cluster.nodes[1].port}")
        with pytest.raises(redis.exceptions.NoPermissionError, match="restore"):
            await before.divide()
        with BlockingState.connect(before.config):
            pass
        allow(cluster.nodes, "+cluster", "+restore")
        await divided(before)


def version_of(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return said.partition(" v=")[2].partition(" ")[0]


@pytest.mark.parametrize("way", ["to a newer one", "to an older one"])
async def test_servers_of_two_versions(tmp_path: Path, way: str) -> None:
    older, newer = shutil.which("redis-server"), embedded.find_server()
    if older is None or not version_of(older).startswith(("7.0.", "7.2.")):  # Valkey reads nothing of later ones
        pytest.skip("no redis-server 7.0 or 7.2 on PATH")
    here, there = (older, newer) if way == "to a newer one" else (newer, older)
    with closing(Server(tmp_path, program=here)) as one, closing(Cluster(tmp_path, program=there)) as cluster:
        before = Before(one.url, cluster)
        if way == "to a newer one":
            await divided(before)
            return
        crawl = await crawl_of(before)
        await fill(crawl)
        await crawl.close()
        with pytest.raises(CrawlprojectError, match="does not read what that one dumps") as caught:
            await before.divide()
        for program in (here, there):
            assert version_of(program) in str(caught.value)
