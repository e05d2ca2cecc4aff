"""What deploy/ has for Prometheus and Grafana: checked by their own tools, and by a real server during a crawl."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric

from crawlproject.metrics.collectors import CrawlCollector, WorkerCollector, registry
from crawlproject.state.keys import Keys
from demo.gallery import Gallery, set_faults
from tests import waiting
from tests.status.test_snapshot import BUCKETS, sample_at, source
from tests.test_crawl import Crawl

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "crawl.json"

needs_prometheus = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="prometheus and promtool are not installed: apt-get install prometheus",
)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def exported() -> list[Metric]:
    """Return all that a worker with a reading tells."""
    one = sample_at(1.0, source("museum", fetches=[1] * BUCKETS), halted=["village"])
    one = replace(one, unread={"archive": 7})
    collectors = CrawlCollector(lambda: {"images": one}), WorkerCollector("images", lambda name: 0, lambda: 0)
    return list(registry(*collectors).collect())


def queries() -> dict[str, str]:
    """Return the queries of dashboard and alerts, by where they stand."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = {
        f"{panel['title']} {target['refId']}": target["expr"] for panel in panels for target in panel["targets"]
    }
    alerts = re.split(r"^ +- alert: ", (DEPLOY / "alerts.yml").read_text(), flags=re.MULTILINE)[1:]
    return found | {alert.partition("\n")[0]: alert.partition(" for: ")[0] for alert in alerts}


def test_every_query_uses_existing_metrics() -> None:
    names = {sample.name for metric in exported() for sample in metric.samples}
    names |= {f"{metric.name}_bucket" for metric in exported() if metric.type == "histogram"}
    asked = {name: set(re.findall(r"\b(?:crawl|process)_[a-z_]+\b", query)) for name, query in queries().items()}
    assert all(asked.values())
    assert {name: metrics - names for name, metrics in asked.items() if metrics - names} == {}
    unwatched = {name for name in names if name.startswith("crawl_")} - set().union(*asked.values())
    assert unwatched == {
        "crawl_sources", "crawl_latency_seconds_count", "crawl_latency_seconds_sum", "crawl_fetch_seconds_count",
        "crawl_fetch_seconds_sum", "crawl_parse_seconds_count", "crawl_parse_seconds_sum",
        "crawl_worker_received_bytes_total", "crawl_worker_faults_total", "crawl_worker_store_returned_total",
        "crawl_worker_leases",
    }  # fmt: skip


def test_labels_are_few_and_never_come_from_the_web() -> None:
    labels = {label for metric in exported() for sample in metric.samples for label in sample.labels}
    ours = labels - {"generation", "implementation", "major", "minor", "patchlevel", "version"}
    assert ours == {"spider", "source", "kind", "state", "quantile", "le", "result", "reader"}


def promtool(*args: str, stdin: str = "") -> None:
    done = subprocess.run(
        ["promtool", *args], input=stdin, capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr


@needs_prometheus
def test_configuration_and_alerts_are_valid() -> None:
    promtool("check", "config", str(DEPLOY / "prometheus.yml"))
    promtool("check", "rules", str(DEPLOY / "alerts.yml"))


class Prometheus:
    """A server of our own, by deploy/prometheus.yml with other ports and a scrape each second."""

    def __init__(self, folder: Path, monitor: int, worker: int) -> None:
        self.port = free_port()
        config = (DEPLOY / "prometheus.yml").read_text()
        for old, new in (
            ("15s", "1s"),
            ("127.0.0.1:9410", f"127.0.0.1:{monitor}"),
            ('"127.0.0.1:9412", "127.0.0.1:9413"', f'"127.0.0.1:{worker}"'),
            ("- alerts.yml", f"- {DEPLOY / 'alerts.yml'}"),
        ):
            assert old in config
            config = config.replace(old, new)
        (folder / "prometheus.yml").write_text(config)
        self.log = (folder / "prometheus.log").open("wb")
        self.process = subprocess.Popen(
            [
                *("prometheus", f"--config.file={folder / 'prometheus.yml'}"),
                *(f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address=127.0.0.1:{self.port}"),
            ],
            stdout=self.log,
            stderr=self.log,
        )

    def get(self, path: str, **query: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None

    def ask(self, query: str) -> list[Any]:
        result: list[Any] = self.get("query", query=query)["result"]
        return result

    def values(self, query: str) -> dict[str, float]:
        """Return the values of an instant vector by source."""
        return {one["metric"].get("source", ""): float(one["value"][1]) for one in self.ask(query)}

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


until = partial(waiting.until, despite=OSError)  # Prometheus may not listen yet


@needs_prometheus
def test_prometheus_sees_a_crawl_and_takes_every_query_of_the_dashboard(crawl: Crawl, tmp_path: Path) -> None:
    photos = crawl.source("photos", 150, pictures=60)
    crawl.source("museum", 20, pictures=10)
    (photos / "broken.jpg").write_bytes(b"")
    set_faults(photos, {"/broken.jpg": {"status": 500}})
    ports = free_port(), free_port()
    prometheus = Prometheus(tmp_path, *ports)
    monitor = subprocess.Popen(
        [sys.executable, "-m", "scrapy", "monitor", "-s", f"CRAWL_METRICS_PORT={ports[0]}"],
        env=crawl.environ,
        stderr=(tmp_path / "monitor.log").open("wb"),
    )
    try:
        keys = Keys("crawl", "images")
        until(lambda: crawl.redis.get(keys.pulse))
        with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
            crawl.start(CRAWL_METRICS_PORT=str(ports[1]), MAX_IDLE_TIME_BEFORE_CLOSE="60")
            crawl.seed("photos", *(f"{n}.jpg" for n in range(60)), "broken.jpg")
            crawl.seed("museum", *(f"{n}.jpg" for n in range(10)))
            until(lambda: prometheus.values("crawl_images_total") == {"photos": 60, "museum": 10, "other": 0})
            until(lambda: prometheus.values('crawl_failed_total{source="photos"}') == {"photos": 1})

            with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/metrics") as response:
                promtool("check", "metrics", stdin=response.read().decode())
            targets = {one["labels"]["job"]: one["health"] for one in prometheus.get("targets")["activeTargets"]}
            assert targets == {"crawl-monitor": "up", "crawl-workers": "up"}

            # every query of the dashboard is one that Prometheus takes
            for name, query in queries().items():
                if name.rpartition(" ")[2].isupper() and len(name.rpartition(" ")[2]) == 1:
                    prometheus.ask(query.replace("$spider", "images").replace("$__rate_interval", "1m"))
    finally:
        monitor.kill()
        monitor.wait()
        prometheus.stop()
