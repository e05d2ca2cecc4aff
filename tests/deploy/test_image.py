"""The Dockerfile built, and deploy/compose.yaml started with its image: `make image-test`."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from crawlproject.sources.rates import rate_for
from crawlproject.state.shards import shard_of
from demo import sources
from demo.cluster import longest_pause
from demo.gallery import Arrival
from tests.deploy.engine import IMAGE, ROOT, Engine, reason_for_none, started
from tests.test_crawl import worst_second
from tests.waiting import until

_ASKED = bool(os.environ.get("IMAGE_TEST"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not _ASKED, reason="`make image-test` builds the image and starts containers"),
]

COMPOSE = ROOT / "deploy" / "compose.yaml"
CLUSTER = ROOT / "deploy" / "compose.cluster.yaml"
PATIENCE_S = 120.0
GRACE_S = 60.0  # stop_grace_period of compose.yaml
NODE_TIMEOUT_S = 3.0  # cluster-node-timeout of compose.cluster.yaml: no master is replaced sooner
# On all that Docker gives networks by default; a worker refuses private addresses.
OVERRIDE = {
    "services": {
        "worker": {
            "environment": {
                "CRAWL_ALLOW_NETWORKS": "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16",
                "CRAWL_HEARTBEAT_TIMEOUT": "5",
            },
            "healthcheck": {"interval": "2s", "retries": 2},  # the rest as in the image
        },
    },
    "networks": {"outside": {"internal": True}},  # whatever the engine reaches, nothing here leaves it
}


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    if reason := reason_for_none():
        pytest.skip(reason)
    with started() as one:
        yield one


class Stack:
    """The containers of compose.yaml, and one beside them that serves the sites of the demo."""

    def __init__(self, engine: Engine, folder: Path, *files: Path) -> None:
        self.engine = engine
        self.folder = folder
        self.sites = folder / "sites"
        self.log = folder / "log"
        self.project = f"crawlproject-test-{os.getpid()}"
        sources.build(self.sites)
        self.log.mkdir()
        self.log.chmod(0o777)  # the gallery's user is that of the image
        self.sites.chmod(0o755)
        override = folder / "override.yaml"
        override.write_text(yaml.safe_dump(OVERRIDE))
        self.files = [word for file in (*files, override) for word in ("-f", str(file))]
        self.environ = {
            "CRAWL_CONTACT": "mailto:tests@example.org",
            "CRAWL_SOURCES": str(self.sites / sources.CATALOGUE),
            "CRAWL_DASHBOARD_PASSWORD": "0fTheDashboard",
            "GRAFANA_PASSWORD": "0fGrafana",
            "REDIS_PASSWORD": "0fRedis",
            "COMPOSE_PROGRESS": "quiet",
        }

    def compose(self, *words: str, stdin: str = "", check: bool = True) -> str:
        """Run `docker compose WORDS`; return what it prints."""
        command = [*self.engine.composer, "--project-name", self.project, *self.files, *words]
        return self.engine.run(*command, stdin=stdin, check=check, **self.environ).stdout.strip()

    def ids(self, service: str) -> list[str]:
        """Return the containers of a service."""
        return self.compose("ps", "--quiet", service).split()

    def inspect(self, container: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.engine.docker("inspect", container))[0]
        return found

    def network(self, name: str) -> str:
        return f"{self.project}_{name}"

    def serve(self) -> dict[str, str]:
        """Start the sites in the workers' network; return the base URL of each."""
        files = "--root /sites --log /log/arrivals --ready /log/ready"
        script = f"python -m demo.gallery {files} --address $(hostname -i)"
        mounts = [f"{ROOT / 'demo'}:/srv/demo:ro", f"{self.sites}:/sites:ro", f"{self.log}:/log"]
        options = [f"--name={self.project}-sites", f"--network={self.network('outside')}", "--workdir=/srv"]
        options += [f"--volume={mount}" for mount in mounts]
        self.engine.docker("run", "--detach", *options, "--entrypoint=sh", IMAGE, "-c", script)
        ready = self.log / "ready"
        until(ready.exists)
        urls: dict[str, str] = json.loads(ready.read_text())
        return urls

    def arrivals(self) -> list[Arrival]:
        lines = (self.log / "arrivals").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def feed(self, seeds: str) -> None:
        self.compose("run", "--rm", "-T", "--no-deps", "worker", "feed", "-", stdin=seeds)

    def health(self, container: str) -> str:
        said: str = self.inspect(container)["State"]["Health"]["Status"]
        return said

    def totals(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.compose("exec", "-T", "monitor", "scrapy", "stats"))
        return found

    def ended(self) -> int:
        totals = self.totals()
        done: int = totals["thumbnails"] + totals["link_rot"] + totals["failed"]
        return done

    def down(self) -> None:
        self.engine.docker("rm", "--force", f"{self.project}-sites", check=False)
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "1", check=False)


def stack(engine: Engine, folder: Path, *files: Path) -> Iterator[Stack]:
    """Yield the containers, removed at the end, with their logs kept in `folder`."""
    one = Stack(engine, folder, *files)
    try:
        yield one
    finally:
        (folder / "containers.log").write_text(one.compose("logs", "--no-color", check=False))
        one.down()


@pytest.fixture
def single(engine: Engine, tmp_path: Path) -> Iterator[Stack]:
    yield from stack(engine, tmp_path, COMPOSE)


@pytest.fixture
def cluster(engine: Engine, tmp_path: Path) -> Iterator[Stack]:
    yield from stack(engine, tmp_path, COMPOSE, CLUSTER)


def every_seed_ended(stack: Stack) -> None:
    """Wait for it, and compare with what each site has, and what the events say."""
    total = sum(source.seeds for source in sources.SOURCES)
    # A Redis Cluster that fails over does not answer for a while.
    until(lambda: stack.ended() == total, PATIENCE_S, despite=AssertionError, hint=f"see {stack.folder}")
    found = stack.totals()["sources"]
    for source in sources.SOURCES:
        row = found[source.name]
        ends = (row["thumbnails"], row["link_rot"], row["failed"])
        assert ends == (source.pictures, source.link_rot, len(source.unreadable)), source.name
    read = "scrapy events /tmp/events >&2 && cat /tmp/events"
    lines = stack.compose("exec", "-T", "monitor", "sh", "-c", read).splitlines()
    events = Counter(event["identifier"] for event in map(json.loads, lines) if "identifier" in event)
    assert (len(events), max(events.values())) == (total, 1)


def rates_were_kept(stack: Stack) -> None:
    for source in sources.SOURCES:
        seen = [one for one in stack.arrivals() if one["source"] == source.name and one["path"] != "/robots.txt"]
        assert seen
        assert worst_second(seen) <= 1.1 * rate_for(source.image_count) + 1, source.name


def test_the_image_has_what_its_commands_need_and_nothing_that_its_user_can_write_to(engine: Engine) -> None:
    (image,) = json.loads(engine.docker("image", "inspect", IMAGE))
    assert image["Config"]["User"] == "10001:10001"
    assert image["Config"]["StopSignal"] == "SIGTERM"
    confined = ["--rm", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges:true"]
    assert engine.docker("run", *confined, IMAGE, "list").split() == ["images", "pages"]
    script = "find / -xdev -writable ! -type l ! -path '/proc/*' ! -path '/dev/*' 2>/dev/null; id -u"
    found = engine.docker("run", "--rm", "--entrypoint", "sh", IMAGE, "-c", script).split()
    assert set(found) <= {"/data", "/tmp", "/var/tmp", "/run/lock", "10001"}
    assert found[-1] == "10001"


def test_a_crawl_in_containers(single: Stack) -> None:
    single.compose("up", "--detach", "--no-build", "redis", "worker", "monitor")
    until(lambda: [single.health(one) for one in single.ids("worker")] == ["healthy"] * 2, PATIENCE_S)

    urls = single.serve()
    seeds = sources.write_seeds(single.sites, urls).read_text()
    single.feed(seeds)
    until(lambda: single.ended() > 100, PATIENCE_S)
    single.compose("up", "--detach", "--no-build", "--scale", "worker=4", "redis", "worker", "monitor")
    assert "openphotos" in single.compose("exec", "-T", "worker", "scrapy", "sources")
    every_seed_ended(single)
    rates_were_kept(single)

    # What a worker can write to, who is in the network of Redis, and what the monitor answers
    worker = single.ids("worker")[0]
    for place, works in (("/", False), ("/venv", False), ("/tmp", True), ("/data", True)):
        done = single.engine.run("docker", "exec", worker, "touch", f"{place}/x", check=False)
        assert (done.returncode == 0) is works, place
    status = single.engine.docker("exec", worker, "cat", "/proc/self/status")
    assert re.search(r"^CapBnd:\s+0+$", status, flags=re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, flags=re.MULTILINE)
    (network,) = json.loads(single.engine.docker("network", "inspect", single.network("redis")))
    assert network["Internal"] is True
    members = {single.ids(service)[0] for service in ("redis", "monitor")} | set(single.ids("worker"))
    assert set(network["Containers"]) == members
    for service in ("redis", "monitor"):
        until(lambda: [single.health(one) for one in single.ids(service)] == ["healthy"], PATIENCE_S)  # noqa: B023
    asked = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9410/metrics').read().decode())"
    metrics = single.compose("exec", "-T", "monitor", "python", "-c", asked)
    assert re.search(r'^crawl_fetched_total\{.*source="openphotos".*\} [1-9]', metrics, flags=re.MULTILINE)

    # A worker that hangs is unhealthy, and healthy again when it goes on: the only child of the container's init
    send = "kill -{} $(cat /proc/1/task/1/children)"
    single.engine.docker("exec", worker, "sh", "-c", send.format("STOP"))
    until(lambda: single.health(worker) == "unhealthy", PATIENCE_S)
    assert "has sent a heartbeat within 5 s" in single.inspect(worker)["State"]["Health"]["Log"][-1]["Output"]
    single.engine.docker("exec", worker, "sh", "-c", send.format("CONT"))
    until(lambda: single.health(worker) == "healthy", PATIENCE_S)

    # SIGTERM: nothing is killed, all is handed back
    single.feed(seeds.replace(".jpg", ".jpg?again"))
    until(lambda: single.totals()["leased"] > 0, PATIENCE_S)
    workers = single.ids("worker")
    moment = time.monotonic()
    single.compose("stop", "worker")
    assert time.monotonic() - moment < GRACE_S
    assert [single.inspect(one)["State"]["ExitCode"] for one in workers] == [0] * 4
    assert single.totals()["leased"] == 0


@pytest.mark.parametrize("shards", [1, 6])
def test_a_crawl_on_a_cluster_in_containers_outlives_a_master(cluster: Stack, shards: int) -> None:
    if shards > 1:
        cluster.environ["CRAWL_SHARDS"] = str(shards)
    workers = max(shards, 2)
    cluster.compose("up", "--detach", "--no-build", "--scale", f"worker={workers}", "worker", "monitor")
    urls = cluster.serve()
    asked = ["exec", "-T", "worker", "scrapy", "shards"]
    rows = until(lambda: json.loads(cluster.compose(*asked, "--json")), PATIENCE_S, despite=AssertionError)
    assert [row["shard"] for row in rows] == list(range(shards))
    assert len({row["node"] for row in rows}) == min(shards, 3)
    assert len(cluster.compose(*asked).splitlines()) == shards + 2  # below the titles, above their number

    cluster.feed(sources.write_seeds(cluster.sites, urls).read_text())
    until(lambda: len(cluster.arrivals()) > 60, PATIENCE_S)
    nodes = {source.name: rows[shard_of(source.name, shards)]["node"] for source in sources.SOURCES}
    killed = nodes["citymuseum"]
    number = int(killed.partition(":")[0].rpartition(".")[2]) - 10
    moment = time.time()
    cluster.compose("kill", "redis" if number == 1 else f"redis-{number}")
    every_seed_ended(cluster)
    rates_were_kept(cluster)
    for source in sources.SOURCES:
        if nodes[source.name] != killed:  # its master lives
            seen = [one["t"] for one in cluster.arrivals() if one["source"] == source.name]
            pause = longest_pause(seen, moment)
            assert pause is None or pause < 1 / rate_for(source.image_count) + NODE_TIMEOUT_S, source.name
    assert [cluster.health(one) for one in cluster.ids("worker")] == ["healthy"] * workers

    # All nodes gone and started again: the one-shot leaves them as they are, and nothing is forgotten
    before = cluster.totals()["sources"]
    cluster.compose("rm", "--stop", "--force")
    cluster.compose("up", "--detach", "--no-build", "worker", "monitor")
    after = until(cluster.totals, PATIENCE_S, despite=AssertionError)["sources"]
    counted = ("thumbnails", "link_rot", "failed")
    assert {name: [row[key] for key in counted] for name, row in after.items()} == {
        name: [row[key] for key in counted] for name, row in before.items()
    }
