"""deploy/terraform by Terraform itself, validated, planned, and applied to moto: `make terraform-test`.

Its provider for AWS, 700 MB, comes from the registry, or from the folder TERRAFORM_PLUGINS, laid out as a mirror.
tests/deploy/test_files.py looks at the files in any case.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

MODULES = Path(__file__).parents[2] / "deploy" / "terraform"

_ASKED = bool(os.environ.get("TERRAFORM_TEST"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not _ASKED, reason="`make terraform-test` asks Terraform, and loads its provider for AWS"),
]

PROVIDER = """
provider "aws" {
  region                      = "eu-central-1"
  access_key                  = "test"
  secret_key                  = "test"
  max_retries                 = 1
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
  endpoints {
    ecs  = "MOTO"
    logs = "MOTO"
  }
}
"""

CRAWL = """
module "crawl" {
  source               = "./crawl"
  image                = "registry.example.org/crawlproject@sha256:0"
  contact              = "mailto:tests@example.org"
  sources              = "https://example.org/sources.json"
  images_store         = "s3://thumbnails/crawl/"
  events_to            = "s3://thumbnails/events/:parquet"
  settings             = { CRAWL_MAX_RETRIES = "2" }
  pages                = 1
  page_events_to       = "--kafka"
  sizes                = { worker = { cpu = 2048, memory = 4096 } }
  tags                 = { project = "museums" }
  redis_url_secret_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:redis"
  cluster_arn          = "CLUSTER"
  subnet_ids           = ["SUBNET"]
  security_group_ids   = ["GROUP"]
  execution_role_arn   = "arn:aws:iam::123456789012:role/execution"
  task_role_arn        = "arn:aws:iam::123456789012:role/task"
}
"""

REDIS = """
variable "password" { default = "0123456789abcdefABCDEF" }

module "redis" {
  source             = "./crawl/redis-cluster"
  password           = var.password
  masters            = 3
  replicas           = 2
  subnet_ids         = ["subnet-1", "subnet-2"]
  security_group_ids = ["sg-1"]
  tags               = { project = "museums" }
}

output "redis_url" {
  value     = module.redis.redis_url
  sensitive = true
}
"""


@pytest.fixture
def terraform(tmp_path: Path) -> Callable[..., str]:
    """Run Terraform in a folder of its own, in which `crawl` is a copy of the module."""
    shutil.copytree(MODULES, tmp_path / "crawl")
    environ = {**os.environ, "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
    if plugins := os.environ.get("TERRAFORM_PLUGINS"):
        environ["TF_CLI_ARGS_init"] = f"-plugin-dir={plugins}"
        environ["TF_CLI_CONFIG_FILE"] = os.devnull

    def run(*words: str, folder: str = ".", works: bool = True) -> str:
        done = subprocess.run(
            ["terraform", f"-chdir={tmp_path / folder}", *words],
            env=environ,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert (done.returncode == 0) is works, done.stdout + done.stderr
        return done.stdout if works else done.stderr

    return run


@pytest.mark.parametrize("module", ["crawl", "crawl/redis-cluster"])
def test_the_modules_are_valid(terraform: Callable[..., str], module: str) -> None:
    terraform("init", "-input=false", "-no-color", folder=module)
    said = json.loads(terraform("validate", "-json", folder=module))
    assert (said["valid"], said["diagnostics"]) == (True, [])


def test_applied_the_crawl_has_its_services(terraform: Callable[..., str], moto: str, tmp_path: Path) -> None:
    def client(service: str) -> Any:
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return boto3.client(service, region_name="eu-central-1", endpoint_url=moto, **keys)

    ecs, ec2 = client("ecs"), client("ec2")
    cluster = ecs.create_cluster(clusterName="crawl")["cluster"]["clusterArn"]
    there = {
        "MOTO": moto,
        "CLUSTER": cluster,
        "SUBNET": ec2.describe_subnets()["Subnets"][0]["SubnetId"],
        "GROUP": ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"],
    }
    text = PROVIDER + CRAWL
    for word, value in there.items():
        text = text.replace(word, value)
    (tmp_path / "main.tf").write_text(text)
    terraform("init", "-input=false", "-no-color")
    terraform("apply", "-auto-approve", "-input=false", "-no-color")

    names = {"worker": 2, "pages": 1, "monitor": 1, "events": 1, "page-events": 1}
    asked = [f"crawl-{name}" for name in names]
    services = ecs.describe_services(cluster=cluster, services=asked, include=["TAGS"])["services"]
    assert [(one["serviceName"], one["desiredCount"]) for one in services] == list(
        zip(asked, names.values(), strict=True)
    )
    sizes = {}
    for service in services:
        assert service["tags"] == [{"key": "project", "value": "museums"}]
        task = ecs.describe_task_definition(taskDefinition=service["taskDefinition"])["taskDefinition"]
        (container,) = task["containerDefinitions"]
        sizes[container["name"]] = (task["cpu"], task["memory"])
        settings = {one["name"]: one["value"] for one in container["environment"]}
        assert settings["CRAWL_MAX_RETRIES"] == "2"
        assert "REDIS_URL" not in settings
        assert container["readonlyRootFilesystem"] is True
        assert container["user"] == "10001:10001"
    assert (sizes["worker"], sizes["pages"]) == (("2048", "4096"), ("1024", "2048"))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('page_events_to = ""', "pages needs a reader of its events: set page_events_to"),
        (
            "sizes = { workers = { cpu = 2048, memory = 4096 } }",
            "expected worker, pages, monitor, events or page-events",
        ),
    ],
)
def test_a_crawl_that_cannot_work_is_refused(
    terraform: Callable[..., str], tmp_path: Path, line: str, fault: str
) -> None:
    name = line.partition(" ")[0]
    kept = [one for one in CRAWL.splitlines() if one.partition("=")[0].strip() != name]
    text = "\n".join([*kept[:-1], line, kept[-1]])
    (tmp_path / "main.tf").write_text(PROVIDER.replace("MOTO", "http://127.0.0.1:1") + text)
    terraform("init", "-input=false", "-no-color")
    assert fault in terraform("plan", "-input=false", "-no-color", works=False).replace("\n", " ")


def test_planned_the_cluster_is_one_that_keeps_what_it_has(terraform: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text(PROVIDER.replace("MOTO", "http://127.0.0.1:1") + REDIS)
    terraform("init", "-input=false", "-no-color")
    terraform("plan", "-out=plan", "-input=false", "-no-color")
    plan = json.loads(terraform("show", "-json", "plan"))
    changes = {one["type"]: one["change"]["after"] for one in plan["resource_changes"]}
    group = changes["aws_elasticache_replication_group"]
    assert (group["num_node_groups"], group["replicas_per_node_group"]) == (3, 2)
    for promised in ("automatic_failover_enabled", "multi_az_enabled", "transit_encryption_enabled"):
        assert group[promised] is True
    assert all(change["tags"] == {"project": "museums"} for change in changes.values())
    parameters = {one["name"]: one["value"] for one in changes["aws_elasticache_parameter_group"]["parameter"]}
    assert parameters == {
        "cluster-enabled": "yes",
        "cluster-require-full-coverage": "no",
        "maxmemory-policy": "noeviction",
    }
    said = terraform("plan", "-var=password=short", "-input=false", "-no-color", works=False)
    assert "password must be 16 to 128 letters and digits" in said
