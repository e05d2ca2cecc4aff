"""Names, by a name server of the tests' own: what is given out, what is not, and for how long it is remembered."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from scrapy.exceptions import CannotResolveHostError
from twisted.internet.address import IPv4Address

from crawlproject import config
from crawlproject.errors import AddressRefused
from crawlproject.frontier import names as module
from crawlproject.frontier.names import Names
from tests.conftest import Zone


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


async def given(names: Names, host: str, port: int = 80) -> list[tuple[str, int]]:
    """Return what a connection to a host would be given."""
    receiver = Receiver()
    names.resolveHostName(receiver, host, port)
    await asyncio.wait_for(receiver.complete.wait(), 15)
    return receiver.addresses


def names_with(**settings: str) -> Names:
    return Names(config.load({"CRAWL_DNS_SERVERS": os.environ["CRAWL_DNS_SERVERS"], **settings}), None)


@pytest_asyncio.fixture
async def names(zone: Zone) -> AsyncIterator[Names]:
    """Names, with 198.51.100.0/24 for a site that may be crawled."""
    zone.forget()
    one = names_with(CRAWL_ALLOW_NETWORKS="198.51.100.0/24")
    yield one
    await one.close()
    zone.forget()


async def test_a_name_is_looked_up_once_and_its_addresses_given_out(names: Names, zone: Zone) -> None:
    zone.records["museum.org"] = [["198.51.100.7", "198.51.100.8"]]
    assert not names.knows("http://museum.org/")
    await asyncio.gather(*(names.look_up(f"http://MUSEUM.org/{number}") for number in range(20)))
    assert names.knows("http://museum.org/")
    assert names.may_be_asked("http://museum.org/")
    assert sorted(await given(names, "museum.org")) == [("198.51.100.7", 80), ("198.51.100.8", 80)]
    assert zone.asked == ["museum.org"]


async def test_what_was_not_looked_up_before_is_when_it_is_connected_to(names: Names, zone: Zone) -> None:
    zone.records["museum.org"] = [["198.51.100.7"]]
    assert await given(names, "museum.org", 443) == [("198.51.100.7", 443)]


async def test_a_private_address_is_not_given_out(
    names: Names, zone: Zone, caplog: pytest.LogCaptureFixture
) -> None:
    zone.records["museum.org"] = [["198.51.100.7", "10.0.0.1"]]
    assert await given(names, "museum.org") == []
    assert "private address 10.0.0.1" in caplog.text
    with pytest.raises(AddressRefused, match=r"private address 10\.0\.0\.1"):
        await given(names, "museum.org")
    assert "private address" in str(names.refusal("http://museum.org/"))
    for literal in ("127.0.0.1", "::1", "::ffff:7f00:1"):
        with pytest.raises(AddressRefused, match="loopback"):
            await given(names, literal)


async def test_the_address_that_was_checked_is_the_one_connected_to(names: Names, zone: Zone) -> None:
    zone.records["rebind.org"] = [["198.51.100.7"], ["127.0.0.1"]]
    await names.look_up("http://rebind.org/")
    for _ in range(3):
        assert await given(names, "rebind.org") == [("198.51.100.7", 80)]
    assert zone.asked == ["rebind.org"]  # its TTL is 0, but nobody asks at the wire


async def test_an_answer_that_has_run_out_serves_while_a_new_one_is_looked_up(
    names: Names, zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEAST", 0.05)
    zone.records["museum.org"] = [["198.51.100.7"], ["198.51.100.8"]]
    monkeypatch.setattr(module, "_MOST", 0.05)
    await names.prepare(["http://museum.org/"])
    await asyncio.sleep(0.06)
    assert await given(names, "museum.org") == [("198.51.100.7", 80)]
    await names.prepare(["http://museum.org/"])  # looks anew, and waits for nothing
    assert names.knows("http://museum.org/")
    while len(zone.asked) < 2 or names._looking:
        await asyncio.sleep(0.01)
    assert await given(names, "museum.org") == [("198.51.100.8", 80)]


async def test_a_name_server_that_fails_takes_no_known_site_away(
    names: Names, zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LEAST", 0.01)
    monkeypatch.setattr(module, "_MOST", 0.01)
    monkeypatch.setattr(module, "_PATIENCE", 1.5)
    zone.records["museum.org"] = [["198.51.100.7"], None]
    await names.look_up("http://museum.org/")
    await asyncio.sleep(0.02)
    await names.prepare(["http://museum.org/"])
    await asyncio.gather(*names._looking.values())
    assert await given(names, "museum.org") == [("198.51.100.7", 80)]


async def test_of_many_addresses_few_are_kept_and_all_are_checked(names: Names, zone: Zone) -> None:
    many = [f"198.51.100.{number}" for number in range(1, 200)]
    zone.records["museum.org"] = [many[:20]]
    zone.records["trap.org"] = [[*many[:20], "127.0.0.1"]]
    for name in ("museum.org", "trap.org"):
        await names.look_up(f"http://{name}/")
    assert len(await given(names, "museum.org")) == 2
    assert "loopback" in str(names.refusal("http://trap.org/"))


async def test_a_failure_is_known_for_longer_than_it_is_fresh(
    names: Names, zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FAILED", 0.01)
    zone.records["museum.org"] = [[], ["198.51.100.7"]]
    await names.look_up("http://museum.org/")
    await asyncio.sleep(0.02)
    assert names.knows("http://museum.org/")  # who has a slot once in minutes meets it, too
    assert not names.may_be_asked("http://museum.org/")
    await names.prepare(["http://museum.org/"])  # and yet looks anew first
    while names._looking:
        await asyncio.sleep(0.01)
    assert names.may_be_asked("http://museum.org/")


async def test_a_failure_has_its_reason_and_is_remembered(names: Names, zone: Zone) -> None:
    await names.look_up("http://nothing.invalid/")
    assert names.knows("http://nothing.invalid/")
    assert not names.may_be_asked("http://nothing.invalid/")
    assert names.failure("http://nothing.invalid/") == "nothing.invalid does not resolve: Domain name not found"
    with pytest.raises(CannotResolveHostError, match="does not resolve"):
        await given(names, "nothing.invalid")
    assert set(zone.asked) == {"nothing.invalid"}


async def test_silence_of_the_name_server_ends_and_holds_up_nobody(
    names: Names, zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.5)
    zone.records["silent.org"] = [None]
    zone.records["museum.org"] = [["198.51.100.7"]]
    silent = asyncio.create_task(names.look_up("http://silent.org/"))
    many = [names.look_up(f"http://{number}.silent.org/") for number in range(200)]
    for number in range(200):
        zone.records[f"{number}.silent.org"] = [None]
    hanging = asyncio.gather(*many)
    async with asyncio.timeout(0.4):
        await names.look_up("http://museum.org/")
    async with asyncio.timeout(5):
        await silent
        await hanging
    assert names.failure("http://silent.org/") == "silent.org does not resolve: the name servers took too long"


async def test_memory_is_bounded(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NAMES", 10)
    for number in range(15):
        await names.look_up(f"http://{number}.museum.org/")
    assert [names.knows(f"http://{number}.museum.org/") for number in (4, 5, 14)] == [False, True, True]


async def test_names_in_other_scripts_are_those_of_their_urls(names: Names, zone: Zone) -> None:
    zone.records["xn--strae-oqa.de"] = [["198.51.100.7"]]
    await names.look_up("http://xn--strae-oqa.de/")
    assert await given(names, "straße.de") == [("198.51.100.7", 80)]  # as Twisted asks
    assert zone.asked == ["xn--strae-oqa.de"]


async def test_odd_names_do_not_resolve_and_break_nothing(names: Names) -> None:
    for host in ("a" * 64 + ".org", "a..org", "-", "a_b", ".".join(["a" * 60] * 6), "xn--a", "a%00b", "*"):
        await names.look_up(f"http://{host}/")
        assert names.knows(f"http://{host}/")
    with pytest.raises(CannotResolveHostError):
        await given(names, "a..org")
