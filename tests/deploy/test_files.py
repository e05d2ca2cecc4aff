"""What cannot be run without a container engine or a cloud, by schemas and linters (see docs/deploy.md)."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import hcl2
import kubernetes_validate
import pytest
import redis
import yaml

from crawlproject import config
from crawlproject.config import SETTINGS, cluster_address
from crawlproject.politeness.addresses import _GLOBAL_V6, _SPECIAL_NETWORKS
from crawlproject.state import embedded
from tests.conftest import ROOT
from tests.waiting import until

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").rglob("*.yaml") if path.name != "kustomization.yaml")
KNOWN = {*SETTINGS, "CRAWL_METRICS_ADDRESS"}  # those of plug-ins: tests/contrib/test_plugins.py


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text())
    return data


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects by kind and name."""
    found = [one for path in MANIFESTS for one in yaml.safe_load_all(path.read_text())]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def run(*command: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    done = run(Path(sys.executable).with_name("hadolint"), "--failure-threshold", "style", ROOT / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_the_dockerfile_runs_unprivileged_and_installs_what_it_copies(tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "USER 10001:10001" in text
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, flags=re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    allowed = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE)
    assert sorted(names) == sorted(allowed)
    (tmp_path / "src").mkdir()
    for name in names:
        if (ROOT / name).is_dir():
            without = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tmp_path / "src" / name, ignore=without)
        else:
            shutil.copy(ROOT / name, tmp_path / "src")
    # As `pip install --no-deps .` does, but for the index, which a test does not ask
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    done = run(*wheel, "--wheel-dir", tmp_path, tmp_path / "src")
    assert done.returncode == 0, done.stderr
    (built,) = tmp_path.glob("*.whl")
    package = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "crawlproject").rglob("*.*") if path.is_file()
    }
    with zipfile.ZipFile(built) as archive:
        assert {name for name in package if not name.endswith((".pyc", ".md"))} <= set(archive.namelist())
    settings = dict(re.findall(r"([A-Z_]+)=([\w./]+)", text.partition("ENV PATH")[2].partition("WORKDIR")[0]))
    assert settings.keys() - KNOWN == {"SCRAPY_SETTINGS_MODULE", "PYTHONDONTWRITEBYTECODE"}


def health_checks() -> dict[str, list[str]]:
    """Return the commands by which containers are asked how they are, of those that run Python."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    found = {"Dockerfile": json.loads(dockerfile.partition(" CMD ")[2].partition("\n")[0])}
    for name, service in compose()["services"].items():
        if test := service.get("healthcheck", {}).get("test"):
            found[f"compose, {name}"] = test[1:]
    for document in manifests().values():
        for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            for name, probe in container.items():
                if name.endswith("Probe") and "exec" in probe:
                    found[f"kubernetes, {container['name']}"] = probe["exec"]["command"]
    return {where: command for where, command in found.items() if command[0] == "python"}


def test_no_health_check_runs_what_lies_in_a_writable_folder(tmp_path: Path) -> None:
    checks = health_checks()
    assert checks.keys() == {"Dockerfile", "compose, monitor", "kubernetes, worker", "kubernetes, pages"}
    for trap in ("redis.py", "urllib.py", "sitecustomize.py", "crawlproject.py"):
        (tmp_path / trap).write_text("import sys; sys.exit('trapped')")
    environ = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "REDIS_URL": "redis://127.0.0.1:1"}
    for where, command in checks.items():
        nobody = [part.replace(":9410", ":1") for part in command[1:]]  # who may listen here
        done = run(sys.executable, *nobody, cwd=tmp_path, env=environ)
        assert done.returncode == 1, where
        assert "trapped" not in done.stderr, where
    assert (ROOT / "Dockerfile").read_text().rpartition("WORKDIR ")[2].partition("\n")[0] == "/"


def test_compose_matches_its_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = run(*command, DEPLOY / "compose.yaml", DEPLOY / "compose.cluster.yaml")
    assert done.returncode == 0, done.stdout


def test_compose_publishes_nothing_beyond_loopback_and_pins_foreign_images() -> None:
    services = compose()["services"]
    for service in services.values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")
        assert "build" in service or re.search(r":v?\d+\.\d+\.\d+(-alpine)?$", service["image"])
    assert services["worker"]["deploy"]["replicas"] == 2
    # Those of plug-ins: tests/contrib/test_plugins.py
    of_others = re.compile("CRAWL_(PAGES|OVERFLOW)_(STORE|SPOOL)|AWS_.*")
    for name in ("worker", "pages"):
        assert {one for one in services[name]["environment"] if not of_others.fullmatch(one)} <= KNOWN


def test_what_not_everybody_needs_is_in_a_profile_and_as_confined_as_the_rest() -> None:
    services = compose()["services"]
    assert {name: one["profiles"] for name, one in services.items() if "profiles" in one} == {
        "pages": ["pages"],
        "page-events": ["page-events"],
        "kafka-seeds": ["kafka", "kafka-seeds"],
        "kafka": ["kafka"],
        "kafka-topics": ["kafka"],
    }
    differs = {"profiles", "command", "environment", "deploy"}
    on_cluster = compose("compose.cluster.yaml")["services"]
    for name, like in (("pages", "worker"), ("page-events", "events")):
        one, other = ({key: services[of][key] for key in services[of].keys() - differs} for of in (name, like))
        assert one == other
        assert on_cluster[name] == on_cluster[like]
    assert services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://kafka:9092"
    for name in ("events", "kafka-seeds"):
        assert services[name]["environment"]["CRAWL_KAFKA_BROKERS"] == "${CRAWL_KAFKA_BROKERS:-kafka:9092}"


def test_every_container_is_read_only_and_without_privileges() -> None:
    for name, service in compose()["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["pids_limit"] == 512, name
        assert not {"privileged", "cap_add", "pid", "ipc", "devices", "configs", "secrets"} & service.keys(), name
    pods = [one["spec"]["template"]["spec"] for one in manifests().values() if "template" in one.get("spec", {})]
    assert len(pods) == 6
    for pod in pods:
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
    task = (DEPLOY / "terraform" / "main.tf").read_text().partition("container_definitions")[2]
    for line in (
        r'user += "10001:10001"',
        r"privileged += false",
        r"readonlyRootFilesystem += true",
        r'capabilities = \{ drop = \["ALL"\] \}',
        r'mountPoints += \[\{ sourceVolume = "tmp", containerPath = "/tmp", readOnly = false \}\]',
    ):
        assert re.search(line, task), line
    assert 'VOLUME ["/data", "/tmp"]' in (ROOT / "Dockerfile").read_text()  # else root's, on Fargate


def test_redis_has_a_network_of_its_own_that_leads_nowhere() -> None:
    data = compose()
    assert data["networks"] == {"outside": None, "redis": {"internal": True}, "kafka": {"internal": True}}
    networks = {name: service.get("networks") or [] for name, service in data["services"].items()}
    assert (networks["redis"], networks["kafka"]) == (["redis"], ["kafka"])
    assert {name for name, its in networks.items() if "redis" in its} == {
        *("redis", "worker", "pages", "monitor", "events", "page-events", "kafka-seeds"),
    }
    assert not any("ports" in data["services"][name] for name in ("redis", "kafka"))


@pytest.mark.slow
def test_redis_of_compose_wants_its_password_and_keeps_its_data(tmp_path: Path) -> None:
    service = compose()["services"]["redis"]
    shell, option, script = service["command"]
    password = "5ecretOfRedis"
    place = tmp_path / "redis.sock"
    wanted = {
        "/tmp/redis.conf": str(tmp_path / "redis.conf"),
        "exec redis-server": f"exec {embedded.find_server()}",
    }
    script = script.replace("$$", "$").rstrip() + f" --port 0 --unixsocket {place}\n"
    for word, here in wanted.items():
        assert word in script
        script = script.replace(word, here)
    environ = {"PATH": os.environ["PATH"], "REDIS_PASSWORD": password}
    process = subprocess.Popen([shell, option, script], env=environ, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(unix_socket_path=str(place), password=password) as client:
            until(client.ping, despite=redis.ConnectionError)
            assert client.config_get("append*")["appendonly"] == "yes"
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        with redis.Redis(unix_socket_path=str(place)) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        assert password not in Path(f"/proc/{process.pid}/cmdline").read_text()
    finally:
        process.terminate()
        process.wait()
    assert (tmp_path / "redis.conf").stat().st_mode & 0o777 == 0o600
    assert data_of(service["environment"]["REDIS_PASSWORD"]) == "REDIS_PASSWORD"
    for name in ("worker", "monitor"):
        url = compose()["services"][name]["environment"]["REDIS_URL"]
        assert url == "redis://:${REDIS_PASSWORD}@redis:6379/0"


def data_of(value: str) -> str:
    """Return the variable without which Compose does not start, as it has no default."""
    found = re.fullmatch(r"\$\{(\w+):\?.+\}", value)
    assert found
    return found[1]


def test_what_is_installed_is_locked_by_hash() -> None:
    pinned = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[\w,]+\])?==([\w.]+)", flags=re.MULTILINE)
    locked: dict[str, set[tuple[str, str]]] = {}
    parts = ("requirements", "requirements-build", "requirements-kafka", "requirements-dev")
    for lock in (*parts, "benchmarks/img2dataset"):
        text = (ROOT / f"{lock}.lock").read_text()
        blocks = re.split(r"\n(?=\S)", text)
        packages = [block for block in blocks if pinned.match(block)]
        assert all("--hash=sha256:" in block for block in packages), lock
        locked[lock] = {(name.lower().replace("_", "-"), version) for name, version in pinned.findall(text)}
        wanted = pinned.findall((ROOT / f"{lock}.txt").read_text())
        names = {(name.lower().replace("_", "-"), version) for name, version in wanted}
        assert names <= locked[lock], f"make lock: {lock}.txt has what {lock}.lock has not"
    installed = locked["requirements"] | locked["requirements-build"] | locked["requirements-kafka"]
    assert installed <= locked["requirements-dev"]
    files = [(ROOT / file).read_text().replace("\\\n", " ") for file in ("Makefile", "Dockerfile")]
    parts_of_lines = [part for text in files for line in text.splitlines() for part in line.split("&&")]
    installs = [part for part in parts_of_lines if "pip install" in part]
    assert len(installs) > 3
    assert [one for one in installs if "--require-hashes" not in one and "--no-deps --no-index" not in one] == []


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_manifests_match_their_schema(path: Path) -> None:
    for one in yaml.safe_load_all(path.read_text()):
        kubernetes_validate.validate(one, "1.31", strict=True)


def test_kubernetes_objects_fit_together() -> None:
    found = manifests()
    for folder in {path.parent for path in MANIFESTS}:
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
        assert sorted(kustomization["resources"]) == [path.name for path in MANIFESTS if path.parent == folder]
    names = set(found["ConfigMap", "crawl"]["data"])
    for kind, name in (
        ("Deployment", "worker"),
        ("StatefulSet", "pages"),
        ("Deployment", "monitor"),
        ("Deployment", "events"),
    ):
        deployment = found[kind, name]["spec"]
        labels = deployment["template"]["metadata"]["labels"]
        assert deployment["selector"]["matchLabels"] == labels
        pod = deployment["template"]["spec"]
        assert pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        (container,) = pod["containers"]
        assert {"secretRef": {"name": "crawl"}} in container["envFrom"]
        assert {"configMapRef": {"name": "crawl"}} in container["envFrom"]
        names |= {variable["name"] for variable in container.get("env", [])}
        reach = found["NetworkPolicy", "crawl"]["spec"]["podSelector"]["matchExpressions"]
        assert labels["app"] in reach[0]["values"]
    assert names - KNOWN == {"EVENTS_TO", "CRAWL_PAGES_SPOOL"}
    assert found["HorizontalPodAutoscaler", "worker"]["spec"]["scaleTargetRef"]["name"] == "worker"
    assert found["PodDisruptionBudget", "worker"]["spec"]["selector"]["matchLabels"] == {"app": "worker"}
    assert found["Service", "monitor"]["spec"]["selector"] == {"app": "monitor"}
    nodes = found["StatefulSet", "redis"]["spec"]
    labels = nodes["template"]["metadata"]["labels"]
    assert nodes["selector"]["matchLabels"] == labels == found["Service", nodes["serviceName"]]["spec"]["selector"]
    assert found["PodDisruptionBudget", "redis"]["spec"]["selector"]["matchLabels"] == labels
    numbers = " ".join(map(str, range(nodes["replicas"])))
    for kind, name in (("StatefulSet", "redis"), ("Job", "redis-cluster")):
        (container,) = found[kind, name]["spec"]["template"]["spec"]["containers"]
        assert f"for node in {numbers};" in container["command"][2]
        assert f'"redis-$node.{nodes["serviceName"]}"' in container["command"][2]
        assert container["image"] == compose()["services"]["redis"]["image"]


def test_workers_and_monitor_of_kubernetes_have_the_same_number_of_shards() -> None:
    found = manifests()
    data = found["ConfigMap", "crawl"]["data"]
    assert config.load(data).shards == 1
    # As docs/deploy.md has it on a Redis Cluster
    text = (ROOT / "docs" / "deploy.md").read_text().partition("## Kubernetes")[2].partition("\n## ")[0]
    (url,) = re.findall(r"REDIS_URL=(redis\+cluster://[^`]+)`", text)
    (shards,) = re.findall(r'`CRAWL_SHARDS: "(\d+)"`', text)
    assert config.load(data | {"REDIS_URL": url, "CRAWL_SHARDS": shards}).shards == int(shards) > 1
    address = cluster_address(url)
    assert address is not None
    nodes = found["StatefulSet", "redis"]["spec"]
    pods = {(f"redis-{number}.{nodes['serviceName']}", 6379) for number in range(nodes["replicas"])}
    assert set(address.nodes) < pods


def test_the_network_policies_let_nobody_in_but_prometheus() -> None:
    policies = {name: one["spec"] for (kind, name), one in manifests().items() if kind == "NetworkPolicy"}
    assert policies.keys() == {"nothing", "crawl", "metrics", "redis", "redis-cluster", "crawl-to-redis"}
    assert policies["nothing"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policies["metrics"]["ingress"][0]["ports"] == [{"port": 9410, "protocol": "TCP"}]
    # The nodes of Redis reach each other and name servers, and only workers, monitor and the job reach them.
    assert {peer for rule in policies["redis"]["egress"] for one in rule["to"] for peer in one} == {
        "podSelector",
        "namespaceSelector",
    }
    admitted = [one for rule in policies["redis"]["ingress"] for one in rule["from"]]
    assert admitted == [
        {"podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": names}]}}
        for names in [["redis", "redis-cluster", "worker", "pages", "monitor", "events"]]
    ] + [{"podSelector": {"matchLabels": {"app": "redis"}}}]


def blocks_open_by_the_guard() -> list[dict[str, Any]]:
    """Return what the network policy lets through, by the table of the address guard."""
    closed: list[Any] = [network for _, network in _SPECIAL_NETWORKS]
    nat64 = ipaddress.ip_network("64:ff9b::/96")
    closed += [
        ipaddress.ip_network((int(nat64[0]) + int(network[0]), 96 + network.prefixlen))
        for network in closed
        if network.version == 4
    ]

    def block(cidr: Any) -> dict[str, Any]:
        inside = [one for one in closed if one.version == cidr.version and one.subnet_of(cidr)]
        found = [str(one) for one in ipaddress.collapse_addresses(inside)]
        return {"ipBlock": {"cidr": str(cidr), "except": found}}

    return [block(cidr) for cidr in (ipaddress.ip_network("0.0.0.0/0"), _GLOBAL_V6, nat64)]


def test_the_network_policies_let_out_to_the_public_web_alone_as_the_address_guard_does() -> None:
    policy = manifests()["NetworkPolicy", "crawl"]["spec"]
    (rule,) = [one for one in policy["egress"] if {"port": 443, "protocol": "TCP"} in one["ports"]]
    expected = blocks_open_by_the_guard()
    assert rule["to"] == expected, f"put into network.yaml\n{yaml.safe_dump(expected, sort_keys=False)}"


def test_terraform_sets_settings_that_there_are() -> None:
    for path in (DEPLOY / "terraform").rglob("*.tf"):
        text = re.sub(r"#.*|description .*", "", path.read_text())
        assert set(re.findall(r"\b((?:CRAWL|IMAGES|REDIS)_[A-Z_]+)\b", text)) <= KNOWN
        hcl2.loads(path.read_text())
