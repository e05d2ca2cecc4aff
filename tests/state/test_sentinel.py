"""Redis behind sentinels: found, lost, and found again at another address."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from crawlproject import config
from crawlproject.config import MasterAddress, cluster_address, sentinel_address
from crawlproject.errors import ConfigError, RedisUnavailable
from crawlproject.state.master import Master
from tests.state.servers import Pair, Server, free_port, opened, options_of, tls_options, tls_server
from tests.test_crawl import KEYS
from tests.waiting import until_async

NO_SENTINELS = [
    "a",
    "a:99999/crawl",
    "a,/crawl",
    "a/crawl/1/2",
    "a/crawl?password=secret",
    "a:0/crawl?sentinel_password=secret",
]
NO_CLUSTERS = ["", "a:0", "::1", "a/crawl", "me:secret@", "a?ssl=1"]
TLS = {"ssl": True, "ssl_ca_certs": "/etc/ca.pem", "ssl_check_hostname": False}
ME = {"username": "me", "password": "p@s/s"}


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("redis+sentinel://a:1,b,[::1]:3/crawl/2", {"nodes": (("a", 1), ("b", 26379), ("::1", 3)), "db": 2}),
        ("redis+sentinel://me:p%40s/s@a/crawl", {"credentials": ME}),
        (
            "redis+sentinel://:s@cret@a/crawl/?sentinel_username=u&sentinel_password=p%26",
            {"credentials": {"password": "s@cret"}, "sentinel_credentials": {"username": "u", "password": "p&"}},
        ),
        (
            "rediss+sentinel://a/crawl?ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=false&sentinel_password=p",
            {"sentinel_credentials": {"password": "p"}, "tls": TLS},
        ),
        ("redis+cluster://a:1,b,[::1]:3/", {"nodes": (("a", 1), ("b", 6379), ("::1", 3))}),
        ("redis+cluster://me:p%40s/s@a:1/0", {"nodes": (("a", 1),), "credentials": ME}),
        ("rediss+cluster://a?ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=false", {"tls": TLS}),
    ],
)
def test_a_url_of_sentinels_or_of_a_cluster_is_parsed(url: str, parts: dict[str, Any]) -> None:
    watched = MasterAddress((("a", 26379),), {}, {}, "crawl", 0, {})
    cluster = MasterAddress((("a", 6379),), {}, {})
    address = watched if "sentinel" in url else cluster
    assert (sentinel_address(url) or cluster_address(url)) == address._replace(**parts)
    assert config.load({"REDIS_URL": url}).redis_url == url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *((f"redis+sentinel://{place}", "redis+sentinel://[user:password@]host:26379") for place in NO_SENTINELS),
        *((f"redis+cluster://{place}", "redis+cluster://[user:password@]host:6379") for place in NO_CLUSTERS),
        ("rediss+sentinel://a/crawl?ssl_check_hostname=perhaps", "ssl_check_hostname=true or false"),
        ("rediss+cluster://a?ssl_cert_reqs=none", "ssl_check_hostname=true or false"),
        ("rediss+cluster://a?ssl_keyfile=key.pem", "with ssl_certfile beside ssl_keyfile"),
    ],
)
def test_a_bad_url_stops_the_start_and_is_reported_without_secrets(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^REDIS_URL='redis") as caught:
        config.load({"REDIS_URL": url})
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_an_unknown_master_is_reported_in_a_sentence() -> None:
    url = f"redis+sentinel://:secret@127.0.0.1:{free_port()}/crawl?sentinel_password=secret"
    with pytest.raises(RedisUnavailable) as caught:
        await opened(url)
    assert "does not answer (no sentinel knows a master at the moment: 127.0.0.1:" in str(caught.value)
    assert "secret" not in str(caught.value)


def leads(client: Any) -> bool:
    """Tell whether a server is a master; a sentinel that makes it one has it close its connections."""
    with suppress(redis.ConnectionError):
        return bool(client.info("replication")["role"] == "master")
    return False


@pytest.mark.parametrize(
    "is_demoted", [False, True]
)  # a master that knows it has its connections in use, and refuses
async def test_a_master_that_has_been_replaced_is_left(pair: Pair, is_demoted: bool) -> None:
    state = await opened(pair.url)
    await state.scripts.lead("leader", ready=True)
    pair.master.client.wait(1, 1000)
    pair.replica.client.replicaof("NO", "ONE")
    replace = pair.sentinel.client.execute_command
    replace("SENTINEL", "REMOVE", "crawl")
    replace("SENTINEL", "MONITOR", "crawl", "127.0.0.1", pair.replica.port, 1)
    if is_demoted:
        pair.master.client.replicaof("127.0.0.1", pair.replica.port)

    async def writes_arrive() -> bool:
        await state.scripts.lead("leader", ready=True)
        return bool(pair.replica.client.get(KEYS.fence) == b"2")

    assert pair.replica.client.delete(KEYS.leader) == 1  # the next term shows there alone
    await until_async(writes_arrive, despite=redis.RedisError if is_demoted else ())
    assert leads(pair.master.client) is not is_demoted
    await state.close()


async def test_a_sentinel_that_talks_nonsense_is_passed_over(pair: Pair) -> None:
    replies = [b"*2\r\n$2\r\nip\r\n$1\r\nx\r\n", b"*6\r\n" + b"$5\r\nflags\r\n$2\r\n\xff\xfe\r\n" * 3, b":1\r\n"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(999):
            writer.write(replies[0])
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        nodes = (("127.0.0.1", server.sockets[0].getsockname()[1]), ("127.0.0.1", pair.sentinel.port))
        for _ in range(3):
            master = Master(MasterAddress(nodes, {}, {}, "crawl"), "")
            master.point(nodes[0])
            assert await master.find() == ("127.0.0.1", pair.master.port)
            del replies[0]


@pytest.fixture
def secured(tmp_path: Path, certificates: Path) -> Iterator[tuple[Server, Server]]:
    """A master and a sentinel that speak TLS only, and want certificates and passwords."""
    tls, program = tls_options(certificates), tls_server()
    master = Server(tmp_path, tls=tls, password="of-servers", program=program)
    sentinel = Server(tmp_path, sentinel=True, tls=tls, password="of-sentinels", program=program)
    watch = sentinel.client.execute_command
    watch("SENTINEL", "MONITOR", "crawl", "127.0.0.1", master.port, 1)
    watch("SENTINEL", "SET", "crawl", "auth-pass", "of-servers")
    yield master, sentinel
    for server in (master, sentinel):
        server.close()


async def test_sentinels_and_servers_over_tls_with_different_passwords(
    secured: tuple[Server, Server], certificates: Path
) -> None:
    _, sentinel = secured
    place = f"127.0.0.1:{sentinel.port}/crawl?sentinel_password=of-sentinels"
    options = options_of(certificates)
    _, _, client = options.partition("&")
    state = await opened(f"rediss+sentinel://:of-servers@{place}&{options}")
    assert await state.scripts.lead("leader", ready=True) == 1
    await state.close()
    for bad in (
        f"redis+sentinel://:of-servers@{place}",  # in the clear
        f"rediss+sentinel://:of-servers@{place}&{client}",  # of an unknown CA
        f"rediss+sentinel://:of-servers@127.0.0.1:{sentinel.port}/crawl?{options}",
    ):
        with pytest.raises(RedisUnavailable, match="no sentinel knows a master") as caught:
            await opened(bad)
        assert "of-se" not in str(caught.value)
