"""Redis servers of one test, to be hurt: started, killed, slowed down, failed over."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crawlproject import config
from crawlproject.state.client import State
from demo.redis_servers import Cluster, Server, free_port
from tests.conftest import ROOT

__all__ = [
    "OF_CRAWL",
    "Cluster",
    "Pair",
    "Server",
    "add_user",
    "denied",
    "free_port",
    "opened",
    "options_of",
    "tls_options",
    "tls_server",
]


async def opened(url: str, number: int | None = None, **settings: Any) -> State:
    """Open a crawl in this Redis."""
    state = State(config.load({"REDIS_URL": url, **settings}), "images", number)
    await state.open()
    return state


OF_CRAWL = "of@crawl/"  # the password of the user `crawl`, as a URL may not have it

# What a user may be denied: the answer of CONFIG may have passwords, CLIENT says who asks, and nothing needs them.
_NOT_NEEDED = {"config", "config|get", "client"}


def add_user(*nodes: Server) -> None:
    """Make the user that docs/deploy.md describes."""
    text = (ROOT / "docs" / "deploy.md").read_text()
    (line,) = re.findall(r"^ +redis-cli acl setuser crawl (.+)$", text, flags=re.MULTILINE)
    rules = line.replace("'", "").replace(">PASSWORD", f">{OF_CRAWL}").split()
    for node in nodes:
        node.client.acl_log_reset()
        assert node.client.execute_command("ACL", "SETUSER", "crawl", *rules)


def denied(*nodes: Server) -> set[str]:
    """Return which commands were denied that are needed."""
    return {row["object"] for node in nodes for row in node.client.acl_log()} - _NOT_NEEDED


def tls_server() -> str:
    """Return the path of a server that is built with TLS, as distributions do; the embedded one is not."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        pytest.skip("no server with TLS: apt-get install redis-server")
    return found


class Pair(NamedTuple):
    """A master, its replica, and a sentinel that watches them under the name `crawl`."""

    master: Server
    replica: Server
    sentinel: Server

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{self.sentinel.port}/crawl"

    def synced(self) -> bool:
        return bool(self.replica.client.info("replication").get("master_link_status") == "up")


def tls_options(certificates: Path) -> dict[str, str]:
    """Return the options of a server that speaks TLS alone, with what is in the folder of that fixture."""
    return {
        "tls_cert_file": f"{certificates}/certificate.pem",
        "tls_key_file": f"{certificates}/key.pem",
        "tls_ca_cert_file": f"{certificates}/ca.pem",
        "tls_replication": "yes",
    }


def options_of(certificates: Path) -> str:
    """Return the part of a URL that has the CA and the client's certificate."""
    client = f"ssl_certfile={certificates}/certificate.pem&ssl_keyfile={certificates}/key.pem"
    return f"ssl_ca_certs={certificates}/ca.pem&{client}"
