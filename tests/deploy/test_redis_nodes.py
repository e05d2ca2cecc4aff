"""The command of the nodes of deploy/kubernetes/redis-cluster, run by real servers on addresses of loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from crawlproject.state import embedded
from demo.redis_servers import free_node_port
from tests.waiting import until

NODES = Path(__file__).parents[2] / "deploy" / "kubernetes" / "redis-cluster" / "nodes.yaml"
PASSWORD = "5ecretOfRedis"
SLOTS = 16384

# What the image has: `redis-cli`, as far as it is used, and `getent`, which knows the pods by the file `hosts`.
REDIS_CLI = f"""#!{sys.executable}
import os, sys
import redis
client = redis.Redis(os.environ["POD_IP"], int(os.environ["PORT"]), password=os.environ["REDISCLI_AUTH"])
words = [word for word in sys.argv[1:] if word != "-e"]
try:
    found = client.connection_pool.get_connection()
    found.send_command(*words)
    print(found.read_response().decode())
except redis.RedisError as error:
    sys.exit(str(error))
"""
GETENT = """#!/bin/sh
grep " $2\\$" "$HOSTS"
"""


class Pods:
    """The pods of the StatefulSet; each start gives a pod another address."""

    def __init__(self, folder: Path) -> None:
        (document, *_) = yaml.safe_load_all(NODES.read_text())
        self.count = document["spec"]["replicas"]
        _, _, script = document["spec"]["template"]["spec"]["containers"][0]["command"]
        self.folder = folder
        self.port = free_node_port()
        self.addresses: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        here = {
            "/tmp/redis.conf": "$PWD/redis.conf",
            "exec redis-server": f"exec {embedded.find_server()}",
            " 6379 ": f" {self.port} ",
            "--cluster-announce-ip": f'--port {self.port} --bind "$POD_IP" --cluster-announce-ip',
        }
        for word, other in here.items():
            assert word in script
            script = script.replace(word, other)
        self.script = script
        for name, text in (("redis-cli", REDIS_CLI), ("getent", GETENT)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    def start(self, first: int) -> None:
        """Start all, at addresses from 127.0.3.`first` on."""
        self.addresses = [f"127.0.3.{first + number}" for number in range(self.count)]
        names = [f"{address} redis-{number}.redis\n" for number, address in enumerate(self.addresses)]
        (self.folder / "hosts").write_text("".join(names))
        for number, address in enumerate(self.addresses):
            data = self.folder / str(number)
            data.mkdir(exist_ok=True)
            environ = {
                "PATH": f"{self.folder}:{os.environ['PATH']}",
                "HOSTS": str(self.folder / "hosts"),
                "PORT": str(self.port),
                "POD_IP": address,
                "REDIS_PASSWORD": PASSWORD,
                "REDISCLI_AUTH": PASSWORD,
            }
            command = ["sh", "-c", self.script]
            with (data / "log").open("a") as log:
                # With what it starts in a group of its own: the shell beside the server is to end with it.
                process = subprocess.Popen(
                    command, env=environ, cwd=data, stdout=log, stderr=log, start_new_session=True
                )
            self.processes.append(process)

    def ask(self, number: int, *words: Any) -> Any:
        client: Any = redis.Redis(self.addresses[number], self.port, password=PASSWORD, decode_responses=True)
        with client:
            return client.execute_command(*words)

    def are_well(self) -> bool:
        """Tell whether each node says so, and knows six of them at their addresses."""
        for number in range(self.count):
            if self.ask(number, "CLUSTER INFO")["cluster_state"] != "ok":
                return False
            nodes = self.ask(number, "CLUSTER NODES")
            places = {place.partition(":")[0].partition("@")[0] for place in nodes}
            if places != set(self.addresses) or any("fail" in row["flags"] for row in nodes.values()):
                return False
        return True

    def stop(self) -> None:
        for process in self.processes:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            process.wait(20)
        self.processes.clear()


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    one = Pods(tmp_path)
    yield one
    one.stop()


@pytest.mark.slow
def test_nodes_that_have_all_started_again_elsewhere_find_each_other(pods: Pods) -> None:
    pods.start(10)
    until(lambda: all(pods.ask(number, "PING") for number in range(pods.count)), despite=redis.ConnectionError)
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(pods.addresses[0], pods.port).ping()
    for number in range(pods.count):  # as `redis-cli --cluster create` does
        pods.ask(number, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        if number:
            pods.ask(number, "CLUSTER", "MEET", pods.addresses[0], pods.port)
    for number in range(3):
        pods.ask(number, "CLUSTER", "ADDSLOTS", *range(SLOTS * number // 3, SLOTS * (number + 1) // 3))
    until(lambda: all(len(pods.ask(number, "CLUSTER NODES")) == pods.count for number in range(pods.count)))
    for number in range(3, pods.count):
        pods.ask(number, "CLUSTER", "REPLICATE", pods.ask(number - 3, "CLUSTER", "MYID"))
    until(pods.are_well)
    key = next(f"key-{n}" for n in range(100) if pods.ask(0, "CLUSTER", "KEYSLOT", f"key-{n}") < SLOTS // 3)
    pods.ask(0, "SET", key, "kept")
    assert pods.ask(0, "CONFIG", "GET", "maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert (pods.folder / "0" / "redis.conf").stat().st_mode & 0o777 == 0o600

    pods.stop()
    pods.start(40)
    until(pods.are_well, despite=redis.RedisError, hint=f"see {pods.folder}/*/log")

    def value() -> Any:
        for number in range(pods.count):
            try:
                return pods.ask(number, "GET", key)
            except redis.ResponseError:  # MOVED: it is another's
                continue
        return None

    assert until(value, despite=redis.RedisError) == "kept"
