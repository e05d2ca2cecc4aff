"""Redis servers to be hurt: started, killed, suspended, failed over; alone or as a Redis Cluster."""

from __future__ import annotations

import random
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.crc import key_slot
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from crawlproject.config import Config, cluster_address, sentinel_address
from crawlproject.state import embedded
from crawlproject.state.keys import Keys
from crawlproject.state.shards import shard_namespace, shard_of

_START_S = 60.0  # on a busy machine


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, and that no connection gets by chance before it is used.

    The port of the cluster bus is 10,000 higher: both lie below those that systems give to connections.
    """
    while True:
        port = secrets.choice(range(10_000, 20_000))
        with suppress(OSError), socket.socket() as bound:
            bound.bind(("127.0.0.1", port))
            return port


class _FollowingPool(SentinelConnectionPool):
    """Asks the sentinels once a second, as a worker does, and leaves a master that they have replaced.

    redis-py's own stays with one that wakes as a second master, and loses what it writes there.
    """

    _asked = 0.0

    def get_connection(self, *args: Any, **options: Any) -> Any:
        if time.monotonic() > self._asked + 1.0:
            self._asked = time.monotonic()
            with suppress(redis.RedisError):  # nobody knows another one
                self.get_master_address()  # type: ignore[no-untyped-call]
        return super().get_connection(*args, **options)


def client_of(url: str, **options: Any) -> Any:
    """Return a client that blocks, for keys wherever they are on a Redis Cluster, as redis-cli -c is."""
    if (watched := sentinel_address(url)) is not None:
        sentinels: Any = Sentinel
        # One that is suspended would hold a call up for a minute.
        patience: Any = {"socket_timeout": 1, "socket_connect_timeout": 1, "retry": Retry(NoBackoff(), 0)}
        known = sentinels(watched.nodes, sentinel_kwargs={**watched.sentinel_credentials, **patience})
        options |= {"db": watched.db, "connection_pool_class": _FollowingPool}
        return known.master_for(watched.service, **watched.credentials, **options)
    if (address := cluster_address(url)) is None:
        return redis.Redis.from_url(url, **options)
    node: Any = ClusterNode
    options |= {"startup_nodes": [node(*one) for one in address.nodes], **address.credentials}
    return redis.RedisCluster(**options)


class Shards:
    """The shards of a crawl in one Redis or on a Redis Cluster, for those who look from outside and block."""

    def __init__(self, settings: Config, spider: str = "images", **options: Any) -> None:
        assert settings.redis_url is not None
        self.redis = client_of(settings.redis_url, **options)
        count, crawl = settings.shards, settings.namespace.strip("{}")
        self.keys = [
            Keys(shard_namespace(settings.namespace, number, count), spider, crawl) for number in range(count)
        ]

    def keys_for(self, source: str) -> Keys:
        """Return the keys of the shard that a source is in."""
        return self.keys[shard_of(source, len(self.keys))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.redis.close()


class Server:
    """A server on a port of its own, with an append-only file; `options` are of its configuration.

    With `tls`, further ones for TLS, it speaks nothing else. `program` is its path, by default the embedded one's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        sentinel: bool = False,
        tls: Mapping[str, str] | None = None,
        password: str | None = None,
        port: int | None = None,
        program: str | None = None,
        **options: str,
    ) -> None:
        self.program = program or embedded.find_server()
        self.port = port or free_port()
        self.folder = folder / f"redis-{self.port}"
        self.folder.mkdir()
        self.sentinel = sentinel
        lines = [f"tls-port {self.port}", "port 0"] if tls else [f"port {self.port}"]
        lines += ["bind 127.0.0.1", f'dir "{self.folder}"', f'logfile "{self.folder}/log"']
        if not sentinel:
            lines += ['save ""', "appendonly yes"]
        if password:
            options = {"requirepass": password} | ({} if sentinel else {"masterauth": password}) | options
        options |= tls or {}
        lines += [f"{name.replace('_', '-')} {value}" for name, value in options.items()]
        self.config = self.folder / "redis.conf"
        self.config.write_text("\n".join(lines) + "\n")
        encrypted: dict[str, Any] = (
            {
                "ssl": True,
                "ssl_ca_certs": tls["tls_ca_cert_file"],
                "ssl_certfile": tls["tls_cert_file"],
                "ssl_keyfile": tls["tls_key_file"],
                "ssl_check_hostname": False,  # a certificate may have a name alone
            }
            if tls
            else {}
        )
        self.client: Any = redis.Redis(
            host="127.0.0.1", port=self.port, password=password, retry=Retry(NoBackoff(), 0), **encrypted
        )
        self.start()

    @property
    def url(self) -> str:
        """Its URL, without the password."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start, also after `kill`, and wait until it answers.

        Raises:
            TimeoutError: it does not; the message names its log.

        """
        command = [self.program, str(self.config), *(["--sentinel"] if self.sentinel else [])]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"Redis does not start within {_START_S:g} s: see {self.folder}/log")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False

    @property
    def append_only_file(self) -> Path:
        """The file that commands are appended to."""
        found = (path for path in self.folder.rglob("*.aof") if ".base." not in path.name)
        return max(found, key=lambda path: path.stat().st_mtime)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it, and the connection to it."""
        self.client.close()
        self.kill()


_SLOTS = 16384
_BUS = 10_000  # above its port a node listens to the others


class Cluster:
    """A Redis Cluster of three masters and three replicas on loopback.

    `node_timeout` (s): a master that is silent for so long is replaced. `tls`, `password` and `program` as of
    `Server`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        node_timeout: float = 1.0,
        tls: Mapping[str, str] | None = None,
        password: str | None = None,
        program: str | None = None,
    ) -> None:
        options: dict[str, Any] = {
            "cluster_enabled": "yes",
            "cluster_node_timeout": str(round(node_timeout * 1000)),
            "cluster_require_full_coverage": "no",  # a slot without a node is no reason to refuse the others
            "repl_diskless_sync_delay": "0",
        }
        self._login = ("AUTH", password) if password else ()
        self.nodes: list[Server] = []
        try:
            for _ in range(6):
                port = free_node_port()
                self.nodes.append(
                    Server(folder, tls=tls, password=password, port=port, program=program, **options)
                )
            self._join()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        for number, node in enumerate(self.nodes):
            ask = node.client.execute_command
            ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number:
                ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        for number, master in enumerate(self.nodes[:3]):
            slots = range(_SLOTS * number // 3, _SLOTS * (number + 1) // 3)
            master.client.execute_command("CLUSTER", "ADDSLOTS", *slots)
        self._wait(lambda: all(len(self._seen_by(node)) == 6 for node in self.nodes))
        for number, replica in enumerate(self.nodes[3:]):
            replica.client.execute_command("CLUSTER", "REPLICATE", self.id_of(self.nodes[number]))
        self._wait(self.is_whole)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cluster is not as it should be: {self._seen_by(self.nodes[0])}")
            time.sleep(0.02)

    @property
    def url(self) -> str:
        """What REDIS_URL is to be: it names two of the nodes, and a place where there is none."""
        places = (self.nodes[1].port, free_port(), self.nodes[2].port)
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in places)

    def is_whole(self) -> bool:
        """Tell whether each node says that all is well, and each replica is up to date."""
        return all(self._sees_all(node) for node in self.nodes)

    def _sees_all(self, node: Server) -> bool:
        try:
            state = node.client.execute_command("CLUSTER INFO")["cluster_state"]
            replication = node.client.info("replication")
            seen = self._seen_by(node)
        except redis.RedisError:
            return False
        linked = replication["role"] == "master" or replication["master_link_status"] == "up"
        roles = [row["flags"].removeprefix("myself,") for row in seen.values()]
        return linked and state == "ok" and sorted(roles) == ["master"] * 3 + ["slave"] * 3

    def _seen_by(self, node: Server) -> dict[str, Any]:
        seen: dict[str, Any] = node.client.execute_command("CLUSTER NODES")
        return seen

    def id_of(self, node: Server) -> str:
        """Return the name that the cluster has for a node."""
        found = node.client.execute_command("CLUSTER", "MYID")
        return found.decode() if isinstance(found, bytes) else str(found)

    def owner_of(self, key: str) -> Server:
        """Return the master that has the slot of a key, by what the nodes that live say themselves."""
        for node in self.nodes:
            try:
                node.client.execute_command("EXISTS", key)
                if node.client.info("replication")["role"] == "master":
                    return node
            except redis.RedisError:  # MOVED, or it is dead
                continue
        raise LookupError(f"no node has the slot of {key}")

    def replica_of(self, master: Server) -> Server:
        """Return the replica of a master."""
        for node in self.nodes:
            about = node.client.info("replication")
            if about["role"] == "slave" and about["master_port"] == master.port:
                return node
        raise LookupError("it has no replica")

    def move_slot(self, key: str, between: Callable[[], None] = lambda: None) -> Server:
        """Move the slot of a key to another master, as redis-cli --cluster reshard does; `between`: half way."""
        slot, source = key_slot(key.encode()), self.owner_of(key)
        target = next(node for node in self.masters() if node is not source)
        ask_source, ask_target = source.client.execute_command, target.client.execute_command
        ask_target("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        ask_source("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))
        migrate = ("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, *self._login, "KEYS")
        count = ask_source("CLUSTER", "COUNTKEYSINSLOT", slot)
        keys = ask_source("CLUSTER", "GETKEYSINSLOT", slot, count)
        for first in range(0, len(keys), 2):
            ask_source(*migrate, *keys[first : first + 2])
            if first <= len(keys) // 2 < first + 2:
                between()
        while left := ask_source("CLUSTER", "GETKEYSINSLOT", slot, 100):
            ask_source(*migrate, *left)
        for node in (target, source, *(node for node in self.masters() if node not in {target, source})):
            node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))
        return target

    def masters(self) -> list[Server]:
        """Return the masters that live."""
        found = []
        for node in self.nodes:
            try:
                if node.client.info("replication")["role"] == "master":
                    found.append(node)
            except redis.RedisError:
                continue
        return found

    def flush(self) -> None:
        """Delete all keys, once all is well."""
        self._wait(self.is_whole)
        for master in self.masters():
            master.client.flushall()

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            node.close()


def free_node_port() -> int:
    """Return a port that is free together with the one of the cluster's bus."""
    while True:
        port = random.randrange(12_000, 22_000)  # below those that the system gives out for a while
        try:
            for tried in (port, port + _BUS):
                with socket.socket() as bound:
                    bound.bind(("127.0.0.1", tried))
        except OSError:
            continue
        return port
