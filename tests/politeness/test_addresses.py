"""Which addresses may be crawled: the tables, and the ways to spell forbidden addresses."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.politeness.addresses import AddressGuard, literal, port_of

GUARD = AddressGuard()

NOBODYS = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "127.0.0.1", "127.255.255.254"),
    *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1"),
    *("198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1"),
    *("255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::"),
    # clouds' own: at addresses that are special anyway, and at public ones
    *("169.254.170.2", "fd00:ec2::254", "fd20:ce::254", "fe80::a9fe:a9fe", "100.100.100.200", "192.0.0.192"),
    *("168.63.129.16", "161.26.0.10", "166.8.0.1", "166.11.255.255", "192.80.8.124", "64:ff9b::a83f:8110"),
    *("3fff::1", "5f00::1", "4000::1", "fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1"),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1", "172.15.255.255"),
    *("172.32.0.0", "192.0.1.1", "198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8"),
    *("168.63.129.15", "168.63.129.17", "161.27.0.0", "166.7.255.255", "166.12.0.0"),
    *("2606:4700::1", "2a00:1450:4001::1", "64:ff9b::808:808", "2620:fe::fe"),
]


@pytest.mark.parametrize("address", NOBODYS)
def test_special_purpose_addresses_are_refused(address: str) -> None:
    assert GUARD.refusal([ipaddress.ip_address(address)], 80)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_reached(address: str) -> None:
    assert GUARD.refusal([ipaddress.ip_address(address)], 443) is None


@given(st.ip_addresses(v=4))
def test_an_address_within_another_is_judged_as_itself(address: ipaddress.IPv4Address) -> None:
    verdict = GUARD.refusal([address], 80) is None
    for prefix in ("::ffff:0:0", "64:ff9b::"):
        within = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) + int(address))
        assert (GUARD.refusal([within], 80) is None) is verdict
    if not address.is_global:  # Python's own table, where the two must agree: what it calls private is refused
        assert not verdict


def test_one_bad_address_among_good_ones_is_enough() -> None:
    answers = [ipaddress.ip_address(address) for address in ("8.8.8.8", "10.0.0.1")]
    assert GUARD.refusal(answers, 80) == "private address 10.0.0.1: CRAWL_ALLOW_NETWORKS opens networks"


def test_allowed_ports_are_the_webs_and_those_of_the_setting() -> None:
    site = [ipaddress.ip_address("8.8.8.8")]
    assert GUARD.refusal(site, 80) is None
    assert GUARD.refusal(site, 443) is None
    assert AddressGuard(ports=(8080,)).refusal(site, 6379) == "port 6379: CRAWL_ALLOW_PORTS opens ports"
    assert AddressGuard(ports=(8080,)).refusal(site, 8080) is None


def test_an_opened_network_is_open_on_every_port_and_opens_no_other() -> None:
    guard = AddressGuard(allow=(ipaddress.ip_network("10.1.0.0/16"),))

    def verdict(address: str) -> str | None:
        return guard.refusal([ipaddress.ip_address(address)], 6379)

    assert verdict("10.1.2.3") is None
    assert verdict("::ffff:10.1.2.3") is None
    assert verdict("10.2.0.1")
    assert verdict("8.8.8.8")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.0/24"),
        ("::ffff:10.1.2.3", "10.1.2.0/24"),
        ("64:ff9b::10.1.2.3", "10.1.2.0/24"),
        ("2002:a01:203::1", "10.1.2.0/24"),  # 6to4
        ("2001:0:a01:203::", "10.1.2.0/24"),  # Teredo: its server
        ("2001:0:808:808:0:0:f5fe:fdfc", "10.1.2.0/24"),  # Teredo: its client, inverted
        ("2a00:1450:4001::1", "2a00:1450::/32"),
        ("8.8.8.8", "8.8.8.8/32"),
    ],
)
def test_a_closed_network_is_closed_also_where_another_setting_opens_it(address: str, network: str) -> None:
    everything = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
    addresses = [ipaddress.ip_address(address)]
    assert AddressGuard(allow=everything).refusal(addresses, 80) is None
    guard = AddressGuard(allow=everything, deny=(ipaddress.ip_network(network),))
    assert guard.refusal(addresses, 80) == f"address {addresses[0]}: CRAWL_DENY_NETWORKS closes {network}"
    assert guard.refusal([ipaddress.ip_address("10.1.3.1")], 80) is None


@pytest.mark.parametrize("address", ["168.63.129.16", "127.0.0.1", "169.254.169.254", "93.184.216.34"])
def test_what_is_built_in_gives_way_to_what_the_operator_opens(address: str) -> None:
    own = [ipaddress.ip_address(address)]
    guard = AddressGuard(is_own=lambda one: one in own)
    assert str(guard.refusal(own, 80)).endswith(f" address {address}: CRAWL_ALLOW_NETWORKS opens networks")
    assert replace(guard, allow=(ipaddress.ip_network(address),)).refusal(own, 8080) is None


def test_the_own_address_of_this_machine_is_refused_also_by_nat64() -> None:
    own = ipaddress.ip_address("93.184.216.34")
    guard = AddressGuard(is_own=lambda one: one == own)
    said = "this machine's own address 93.184.216.34: CRAWL_ALLOW_NETWORKS opens networks"
    assert guard.refusal([own], 80) == said
    assert "own" in str(guard.refusal([ipaddress.ip_address("64:ff9b::5db8:d822")], 80))
    assert guard.refusal([ipaddress.ip_address("93.184.216.35")], 80) is None


# RFC 6052, section 2.4: 192.0.2.33 behind a prefix of each length
EMBEDDED = {
    "2001:db8::/32": "2001:db8:c000:221::",
    "2001:db8:100::/40": "2001:db8:1c0:2:21::",
    "2001:db8:122::/48": "2001:db8:122:c000:2:2100::",
    "2001:db8:122:300::/56": "2001:db8:122:3c0:0:221::",
    "2001:db8:122:344::/64": "2001:db8:122:344:c0:2:2100::",
    "2001:db8:122:344::/96": "2001:db8:122:344::192.0.2.33",
    "64:ff9b:1::/48": "64:ff9b:1:c000:2:2100::",  # RFC 8215
}


@pytest.mark.parametrize("prefix", EMBEDDED)
def test_behind_a_prefix_of_the_operators_network_is_the_ipv4_address(prefix: str) -> None:
    address = ipaddress.ip_address(EMBEDDED[prefix])
    guard = AddressGuard(nat64=(ipaddress.IPv6Network(prefix),))
    assert str(guard.refusal([address], 80)).startswith("documentation address ")
    assert replace(guard, allow=(ipaddress.ip_network("192.0.2.33"),)).refusal([address], 80) is None
    assert replace(guard, allow=(ipaddress.ip_network(prefix),)).refusal([address], 80)  # it opens no IPv4 address


def test_hosts_and_ports_are_taken_from_urls() -> None:
    assert [port_of(url) for url in ("http://a/", "https://a/", "https://a:80/", "http://[::1]:8080/")] == [
        *(80, 443, 80, 8080)
    ]
    assert literal("museum.org") is None
    assert literal("::1") == ipaddress.ip_address("::1")
