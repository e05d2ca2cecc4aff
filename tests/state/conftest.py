"""What the tests of several files here share: servers behind a sentinel, and certificates for servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.state.servers import Pair, Server
from tests.waiting import until


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """A master, its replica and their sentinel."""
    master = Server(tmp_path, repl_diskless_sync_delay="0")  # of whichever is the master
    replica = Server(tmp_path, repl_diskless_sync_delay="0", replicaof=f"127.0.0.1 {master.port}")
    sentinel = Server(tmp_path, sentinel=True)
    watch = sentinel.client.execute_command
    one = Pair(master, replica, sentinel)
    until(one.synced)  # first: a sentinel asks its master for replicas at once, and then each ten seconds
    watch("SENTINEL", "MONITOR", "crawl", "127.0.0.1", master.port, 1)
    watch("SENTINEL", "SET", "crawl", "down-after-milliseconds", "1000", "failover-timeout", "3000")
    until(lambda: watch("SENTINEL", "REPLICAS", "crawl"))
    yield one
    for server in one:
        server.close()


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with a CA and its certificates: for a server at 127.0.0.1 and for a client."""
    return certified(tmp_path / "tls", "127.0.0.1")


def certified(folder: Path, name: str) -> Path:
    """Make a folder with a CA, and a certificate of it that is for `name` alone."""
    folder.mkdir()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert(name)
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "certificate.pem"))
    return folder
