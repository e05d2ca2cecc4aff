"""What a command loads before it does anything: Scrapy imports all commands, whichever is run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

HEAVY = ("boto3", "confluent_kafka", "prometheus_client", "tldextract", "PIL", "cykooz_resizer")
OURS = ("crawlproject.net.handler", "crawlproject.frontier.scheduler", "crawlproject.leader")


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    code = (
        "import sys; from scrapy.utils.misc import walk_modules_iter; "
        "list(walk_modules_iter('crawlproject.commands')); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", [*HEAVY, *OURS])
def test_what_takes_long_to_load_is_loaded_by_those_who_use_it(loaded: set[str], name: str) -> None:
    assert "crawlproject.commands.stats" in loaded
    assert name not in loaded
