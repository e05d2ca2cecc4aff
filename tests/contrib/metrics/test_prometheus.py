"""What deploy/ has for Prometheus and Grafana, checked by Prometheus' own tool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric

from crawlproject.contrib.metrics.collectors import CrawlCollector, WorkerCollector, registry
from tests.status.test_snapshot import BUCKETS, sample_at, source
from tests.waiting import PATIENCE_S

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "crawl.json"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed: apt-get install prometheus"
)


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
        "crawl_sources", "crawl_items_total", "crawl_latency_seconds_count", "crawl_latency_seconds_sum",
        "crawl_fetch_seconds_count",
        "crawl_fetch_seconds_sum", "crawl_parse_seconds_count", "crawl_parse_seconds_sum",
        "crawl_worker_received_bytes_total", "crawl_worker_faults_total", "crawl_worker_store_returned_total",
        "crawl_worker_leases", "crawl_not_html_total",
    }  # fmt: skip


def test_labels_are_few_and_never_come_from_the_web() -> None:
    labels = {label for metric in exported() for sample in metric.samples for label in sample.labels}
    ours = labels - {"generation", "implementation", "major", "minor", "patchlevel", "version"}
    assert ours == {"spider", "source", "kind", "state", "quantile", "le", "result", "type", "reader"}


def promtool(*args: str) -> None:
    done = subprocess.run(["promtool", *args], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr


@needs_promtool
def test_configuration_and_alerts_are_valid() -> None:
    promtool("check", "config", str(DEPLOY / "prometheus.yml"))
    promtool("check", "rules", str(DEPLOY / "alerts.yml"))


@needs_promtool
def test_prometheus_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    asked = [one for name, one in queries().items() if re.search(" [A-Z]$", name)]
    assert len(asked) > 10
    plain = [one.replace("$spider", "images").replace("$__rate_interval", "1m") for one in asked]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(plain)]
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(tmp_path / "rules.json"))
