"""The resolver, against a test name server: which addresses it returns, which not, and its cache."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import dnslib
import dnslib.server
import pytest
import pytest_asyncio
from scrapy.exceptions import CannotResolveHostError
from twisted.internet.address import IPv4Address

from crawlproject import config
from crawlproject.errors import AddressRefused, NoNameServer
from crawlproject.net import resolver as module
from crawlproject.net.resolver import Resolver, is_own
from demo.gallery import Gallery
from tests.conftest import ROOT, Zone
from tests.state.servers import free_port
from tests.test_crawl import KEYS, Crawl
from tests.waiting import PATIENCE_S, until_async


class Receiver:
    """Twisted's side of a resolution."""

    def __init__(self) -> None:
        self.addresses: list[tuple[str, int]] = []
        self.complete = asyncio.Event()

    def resolutionBegan(self, resolution: Any) -> None:  # noqa: N802
        assert resolution.name

    def addressResolved(self, address: IPv4Address) -> None:  # noqa: N802
        self.addresses.append((address.host, address.port))

    def resolutionComplete(self) -> None:  # noqa: N802
        self.complete.set()


Hurry = Callable[[float], None]


async def given(resolver: Resolver, host: str, port: int = 80) -> list[tuple[str, int]]:
    """Return the addresses that a connection to a host would get."""
    receiver = Receiver()
    resolver.resolveHostName(receiver, host, port)
    await asyncio.wait_for(receiver.complete.wait(), PATIENCE_S)
    return receiver.addresses


def resolver_with(**settings: str) -> Resolver:
    return Resolver(config.load({"CRAWL_DNS_SERVERS": os.environ["CRAWL_DNS_SERVERS"], **settings}), None)


@pytest_asyncio.fixture
async def resolver(zone: Zone) -> AsyncIterator[Resolver]:
    """Resolver, with 198.51.100.0/24 for a site that may be crawled."""
    zone.forget()
    one = resolver_with(CRAWL_ALLOW_NETWORKS="198.51.100.0/24")
    yield one
    await one.close()
    zone.forget()


async def test_a_name_is_looked_up_once_and_its_addresses_returned(resolver: Resolver, zone: Zone) -> None:
    zone.records["museum.org"] = [["198.51.100.7", "198.51.100.8"]]
    assert not resolver.knows("http://museum.org/")
    await asyncio.gather(*(resolver.look_up(f"http://MUSEUM.org/{number}") for number in range(20)))
    assert resolver.knows("http://museum.org/")
    assert resolver.may_be_reached("http://museum.org/")
    assert sorted(await given(resolver, "museum.org")) == [("198.51.100.7", 80), ("198.51.100.8", 80)]
    assert zone.asked == ["museum.org"]


async def test_a_private_address_is_not_returned(
    resolver: Resolver, zone: Zone, caplog: pytest.LogCaptureFixture
) -> None:
    zone.records["museum.org"] = [["198.51.100.7", "10.0.0.1"]]
    assert await given(resolver, "museum.org") == []
    assert "private address 10.0.0.1" in caplog.text
    with pytest.raises(AddressRefused, match=r"private address 10\.0\.0\.1"):
        await given(resolver, "museum.org")
    assert "private address" in str(resolver.refusal("http://museum.org/"))
    for literal in ("127.0.0.1", "::1", "::ffff:7f00:1"):
        with pytest.raises(AddressRefused, match="loopback"):
            await given(resolver, literal)


async def test_networks_are_closed_by_the_settings_and_behind_a_prefix_of_nat64(zone: Zone) -> None:
    names = {"closed.org": "127.0.0.1", "translated.org": "2a00:6464::7f00:1", "open.org": "127.0.0.2"}
    zone.records.update({name: [[address]] for name, address in names.items()})
    one = resolver_with(
        CRAWL_ALLOW_NETWORKS="127.0.0.0/8",
        CRAWL_DENY_NETWORKS="127.0.0.1/32",
        CRAWL_NAT64_PREFIXES="2a00:6464::/96",
    )
    for host in ("127.0.0.1", "[64:ff9b::127.0.0.1]", "closed.org", "translated.org"):
        await one.look_up(f"http://{host}/")
        assert "CRAWL_DENY_NETWORKS closes 127.0.0.1/32" in str(one.refusal(f"http://{host}/"))
    assert await given(one, "open.org") == [("127.0.0.2", 80)]
    await one.close()
    zone.forget()


async def test_the_address_that_was_checked_is_the_one_connected_to(resolver: Resolver, zone: Zone) -> None:
    zone.records["rebind.org"] = [["198.51.100.7"], ["127.0.0.1"]]
    await resolver.look_up("http://rebind.org/")
    for _ in range(3):
        assert await given(resolver, "rebind.org") == [("198.51.100.7", 80)]
    assert zone.asked == ["rebind.org"]  # its TTL is a second, but no query is sent when connecting


async def test_an_expired_answer_serves_while_a_new_one_is_looked_up(
    resolver: Resolver, zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MIN_TTL_S", 0.05)
    zone.ttl = 0  # or c-ares itself would answer
    zone.records["museum.org"] = [["198.51.100.7"], ["198.51.100.8"]]
    monkeypatch.setattr(module, "_MAX_TTL_S", 0.05)
    await resolver.prepare(["http://museum.org/"])
    await asyncio.sleep(0.06)
    assert await given(resolver, "museum.org") == [("198.51.100.7", 80)]
    await resolver.prepare(["http://museum.org/"])  # starts a new look-up without waiting
    assert resolver.knows("http://museum.org/")
    await until_async(lambda: len(zone.asked) >= 2 and not resolver._lookups)
    assert await given(resolver, "museum.org") == [("198.51.100.8", 80)]


async def test_of_many_addresses_few_are_kept_and_all_are_checked(resolver: Resolver, zone: Zone) -> None:
    many = [f"198.51.100.{number}" for number in range(1, 200)]
    zone.records["museum.org"] = [many[:20]]
    zone.records["trap.org"] = [[*many[:20], "127.0.0.1"]]
    for name in ("museum.org", "trap.org"):
        await resolver.look_up(f"http://{name}/")
    assert len(await given(resolver, "museum.org")) == 2
    assert "loopback" in str(resolver.refusal("http://trap.org/"))


async def test_a_failure_has_its_reason_and_is_cached(resolver: Resolver, zone: Zone) -> None:
    await resolver.look_up("http://nothing.invalid/")
    assert resolver.knows("http://nothing.invalid/")
    assert not resolver.may_be_reached("http://nothing.invalid/")
    assert resolver.failure("http://nothing.invalid/") == "nothing.invalid does not resolve: Domain name not found"
    with pytest.raises(CannotResolveHostError, match="does not resolve"):
        await given(resolver, "nothing.invalid")
    assert set(zone.asked) == {"nothing.invalid"}


async def test_a_silent_name_server_is_given_up_and_delays_no_other_name(
    resolver: Resolver, zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_QUERY_TIMEOUT_S", 5.0)
    monkeypatch.setattr(module, "_MAX_LOOKUPS", 10)
    zone.records["silent.org"] = [None]
    zone.records["museum.org"] = [["198.51.100.7"]]
    silent = asyncio.create_task(resolver.look_up("http://silent.org/"))
    many = [resolver.look_up(f"http://{number}.silent.org/") for number in range(40)]
    for number in range(40):
        zone.records[f"{number}.silent.org"] = [None]
    hanging = asyncio.gather(*many)
    await asyncio.sleep(0)
    await resolver.look_up("http://museum.org/")
    assert not silent.done()
    assert not hanging.done()
    await silent
    await hanging
    await resolver.prepare(f"http://{number}.other.org/" for number in range(40))
    assert len({name for name in zone.asked if name.endswith(".other.org")}) <= 10
    reason = "silent.org does not resolve: the name servers did not answer in time"
    assert resolver.failure("http://silent.org/") == reason


async def test_the_number_of_names_is_bounded(resolver: Resolver) -> None:
    resolver._answers.limit = 10
    for number in range(15):
        await resolver.look_up(f"http://{number}.museum.org/")
    assert [resolver.knows(f"http://{number}.museum.org/") for number in (4, 5, 14)] == [False, True, True]


# Outages of the name servers


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> Hurry:
    """Has name servers answer within so many seconds: little where they do not, much where they are to."""

    def within(seconds: float) -> None:
        monkeypatch.setattr(module, "_QUERY_TIMEOUT_S", seconds)
        monkeypatch.setattr(module, "_PROBE_TIMEOUT_S", seconds)

    monkeypatch.setattr(module, "_PAUSE_S", 0.05)
    monkeypatch.setattr(module, "_RECENT_ANSWER_S", 0.0)
    within(0.3)
    return within


async def answering_again(resolver: Resolver) -> None:
    await until_async(lambda: not resolver.outage)


@pytest.mark.parametrize("outage", ["silence", "SERVFAIL", "REFUSED"])
async def test_an_outage_of_the_name_servers_is_not_the_fault_of_the_sites(
    resolver: Resolver, zone: Zone, hurried: Hurry, outage: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    zone.records["known.org"] = [["198.51.100.7"]]
    hurried(PATIENCE_S)
    await resolver.look_up("http://known.org/")
    hurried(0.3)
    if outage == "silence":
        zone.away = True
    else:
        zone.rcodes["*"] = getattr(dnslib.RCODE, outage)
    await asyncio.gather(*(resolver.look_up(f"http://{number}.org/") for number in range(9)))
    assert resolver.outage.startswith(f"no name server answers ({os.environ['CRAWL_DNS_SERVERS']}; ")
    for number in range(9):
        assert not resolver.knows(f"http://{number}.org/")
        assert resolver.failure(f"http://{number}.org/") is None
        with pytest.raises(NoNameServer):
            await given(resolver, f"{number}.org")
    assert await given(resolver, "known.org") == [("198.51.100.7", 80)]
    await asyncio.sleep(0.3)
    assert resolver.outage
    zone.away = False
    zone.rcodes.clear()
    await answering_again(resolver)
    hurried(PATIENCE_S)
    zone.records["1.org"] = [["198.51.100.8"]]
    await resolver.look_up("http://1.org/")
    assert await given(resolver, "1.org") == [("198.51.100.8", 80)]
    said = [record.message for record in caplog.records]
    assert said[0].startswith("Requests to unresolved hosts wait: no name server answers (")
    assert said[1:] == ["Name servers answer again"]


@pytest.mark.parametrize("outage", ["silence", "SERVFAIL", "REFUSED"])
async def test_one_domain_whose_servers_fail_is_not_an_outage(
    resolver: Resolver, zone: Zone, hurried: Hurry, monkeypatch: pytest.MonkeyPatch, outage: str
) -> None:
    monkeypatch.setattr(module, "_PROBE_TIMEOUT_S", PATIENCE_S)
    for number in range(5):
        if outage == "silence":
            zone.records[f"{number}.broken.org"] = [None]
        else:
            zone.rcodes[f"{number}.broken.org"] = getattr(dnslib.RCODE, outage)
    await asyncio.gather(*(resolver.look_up(f"http://{number}.broken.org/") for number in range(5)))
    assert not resolver.outage
    for number in range(5):
        assert "does not resolve" in str(resolver.failure(f"http://{number}.broken.org/"))


async def test_a_name_that_resolved_and_fails_from_then_on_does_not_stop_the_others(
    resolver: Resolver, zone: Zone, hurried: Hurry
) -> None:
    hurried(PATIENCE_S)
    zone.ttl = 60  # of one second, none may be left when the answer is read
    zone.records |= {"good.org": [["198.51.100.7"]], "evil.org": [["198.51.100.8"]]}
    for host in ("good.org", *(f"{number}.evil.org" for number in range(9)), "evil.org"):
        await resolver.look_up(f"http://{host}/")
    zone.rcodes[""] = dnslib.RCODE.REFUSED
    zone.rcodes |= {f"{number}.evil.org": dnslib.RCODE.SERVFAIL for number in range(20)}
    zone.rcodes["evil.org"] = dnslib.RCODE.SERVFAIL
    await resolver.look_up("http://11.evil.org/")
    assert not resolver.outage
    assert resolver.failure("http://11.evil.org/")


async def test_a_name_that_no_name_server_is_asked_for_says_nothing_of_them(
    resolver: Resolver, zone: Zone, hurried: Hurry
) -> None:
    zone.away = True
    await resolver.look_up("http://localhost/")
    assert resolver.knows("http://localhost/")
    await resolver.look_up("http://museum.org/")
    assert resolver.outage
    await resolver.prepare(["http://a.localhost/"])
    await asyncio.sleep(0.5)  # probes follow
    assert resolver.outage
    zone.away = False
    await answering_again(resolver)


async def test_an_outage_ends_for_all_when_one_of_many_names_that_are_wanted_resolves(
    resolver: Resolver, zone: Zone, hurried: Hurry
) -> None:
    zone.rcodes |= {"": dnslib.RCODE.REFUSED, "-": dnslib.RCODE.REFUSED, "*": dnslib.RCODE.REFUSED}
    zone.rcodes |= {f"{number}.evil.org": dnslib.RCODE.SERVFAIL for number in range(500)}
    await resolver.look_up("http://0.evil.org/")
    assert resolver.outage
    zone.asked.clear()
    await resolver.prepare(f"http://{number}.evil.org/" for number in range(500))
    assert zone.asked == []
    for host in ("a" * 64 + ".org", "a..org", "-", ".".join(["a" * 60] * 6), "xn--a", "a%00b", "*"):
        await resolver.look_up(f"http://{host}/")  # no valid names: nothing is to be learned from them
        await asyncio.sleep(0.1)
    assert resolver.outage
    await resolver.look_up("http://198.51.100.7/")  # no name server is asked for that
    await asyncio.sleep(0.3)
    assert resolver.outage
    del zone.rcodes["*"]
    evil = [f"http://{number}.evil.org/" for number in range(500)]
    await resolver.prepare(["http://nothing.invalid/", *evil])  # that there is no such name is an answer, too
    await answering_again(resolver)


def test_a_crawl_waits_for_its_name_servers_and_blames_no_site(crawl: Crawl, zone: Zone) -> None:
    port = free_port()
    crawl.source("museum", 100, pictures=20)
    names = dnslib.server.DNSServer(
        zone, address="127.0.0.1", port=port, logger=dnslib.server.DNSLogger("", prefix=False)
    )
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        site = crawl.gallery.urls["museum"].rpartition(":")[2]
        for number in range(20):
            url = f"http://{number % 7}.museum{number % 3}.org:{site}/{number}.jpg"
            seed = {"url": url, "uuid": f"{number}", "source": "museum"}
            crawl.redis.lpush(KEYS.seeds, json.dumps(seed))
        crawl.start(CRAWL_DNS_SERVERS=f"127.0.0.1:{port}", CRAWL_MAX_RETRIES="0", CRAWL_RETRY_DELAY="0.5")
        crawl.until(lambda: "Requests to unresolved hosts wait: no name server answers" in crawl.log())
        time.sleep(2)
        assert crawl.redis.hget(KEYS.counters, "outstanding") == b"20"
        assert crawl.redis.keys(KEYS.robots_of + "*") == []
        names.start_thread()
        try:
            crawl.finish()
        finally:
            names.stop()
            names.server.server_close()
    assert crawl.outcomes() == {str(number): 1 for number in range(20)}
    assert len(crawl.events(KEYS.image_events)) == 20
    assert crawl.redis.lrange(KEYS.statuses_of + "museum", 0, -1) == [b"200"] * 20
    assert crawl.redis.hget(KEYS.totals, "retried") is None
    log = crawl.log()
    assert log.count("Requests to unresolved hosts wait") == 1
    assert log.count("Name servers answer again") == 1
    assert "'resolver/returned'" in log
    assert "Traceback" not in log


# Which addresses are this machine's own

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
