"""What a command loads before it does anything: itself, and no others, or all where Scrapy lists them."""

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


def test_a_command_loads_no_other_one() -> None:
    code = (
        "import sys; from scrapy.cmdline import execute; sys.argv[1:] = ['halt', '--help']\n"
        "try: execute()\nexcept SystemExit: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    modules = done.stdout.split("\n")[-2].split()
    assert [name for name in modules if name.startswith("crawlproject.commands.")] == [
        "crawlproject.commands.halt"
    ]
    assert not [name for name in modules if name.startswith("scrapy.commands.")]
