"""Which addresses are this machine's own."""

from __future__ import annotations

import ipaddress
import json
import resource
import shutil
import subprocess
import sys

import pytest

from crawlproject.net.resolver import is_own
from tests.conftest import ROOT

# Of root name servers: as public as can be
OWN, SECONDARY, OWN_V6, OTHER = "193.0.14.129", "193.0.14.130", "2001:7fd::1", "192.36.148.17"

# A machine for itself with three public addresses, and what the guard says there
INSIDE = f"""
ip link set lo up && ip address add {OWN_V6}/128 dev lo || exit 3
ip address add {OWN}/24 dev lo && ip address add {SECONDARY}/24 dev lo && exec "$0" -c '
import json
from crawlproject import config
from crawlproject.net.resolver import Resolver
hosts = ["{OWN}", "{SECONDARY}", "[{OWN_V6}]", "[64:ff9b::{OWN}]", "{OTHER}", "[2a00::1]"]
settings = [{{}}, {{"CRAWL_ALLOW_NETWORKS": "{OWN}, {SECONDARY}, {OWN_V6}"}}]
resolvers = [Resolver(config.load(one), None) for one in settings]
print(json.dumps([[resolver.refusal(f"http://{{host}}/") for host in hosts] for resolver in resolvers]))
'
"""


@pytest.mark.parametrize(
    ("address", "is_ours"),
    [
        *(("127.0.0.1", True), ("127.1.2.3", True)),
        *(("192.36.148.17", False), ("8.8.8.8", False), ("2001:7fe::53", False)),
    ],
)
def test_those_of_an_interface_are_and_others_are_not(address: str, is_ours: bool) -> None:
    assert is_own(ipaddress.ip_address(address)) is is_ours


def test_what_the_kernel_does_not_answer_is_refused_and_not_remembered() -> None:
    address = ipaddress.ip_address("9.9.9.9")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # no more files to open: no socket to ask with
    try:
        unanswered = is_own(address)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert unanswered
    assert not is_own(address)


def unshared(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a network namespace of its own."""
    whole = ["unshare", "--user", "--map-root-user", "--net", *command]
    return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.skipif(
    not (shutil.which("unshare") and shutil.which("ip"))
    or unshared("ip", "link", "set", "lo", "up").returncode != 0,
    reason="this machine gives nobody a network namespace",
)
def test_a_machine_refuses_its_own_public_addresses_unless_they_are_opened() -> None:
    done = unshared("sh", "-c", INSIDE, sys.executable)
    assert done.returncode == 0, done.stderr
    refused, opened = json.loads(done.stdout)
    remedy = "CRAWL_ALLOW_NETWORKS opens networks"
    assert refused == [
        f"this machine's own address {OWN}: {remedy}",
        f"this machine's own address {SECONDARY}: {remedy}",
        f"this machine's own address {OWN_V6}: {remedy}",
        f"this machine's own address 193.0.14.129: {remedy}",  # as [64:ff9b::193.0.14.129]
        None,
        None,
    ]
    assert opened == [None] * 6
