"""Which addresses may be crawled: the tables, and the ways to spell forbidden addresses."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproject.politeness.addresses import check_addresses, check_url, literal, port_of

NOBODYS = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "127.0.0.1", "127.255.255.254"),
    *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1"),
    *("198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1"),
    *("255.255.255.255", "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe"),
    *("64:ff9b::127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::"),
    *("3fff::1", "5f00::1", "4000::1", "fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1"),
]
PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1", "172.15.255.255"),
    *("172.32.0.0", "192.0.1.1", "198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8"),
    *("2606:4700::1", "2a00:1450:4001::1", "64:ff9b::808:808", "2620:fe::fe"),
]


@pytest.mark.parametrize("address", NOBODYS)
def test_special_purpose_addresses_are_refused(address: str) -> None:
    assert check_addresses([ipaddress.ip_address(address)], 80, (), ())


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_may_be_reached(address: str) -> None:
    assert check_addresses([ipaddress.ip_address(address)], 443, (), ()) is None


@given(st.ip_addresses(v=4))
def test_an_address_within_another_is_judged_as_itself(address: ipaddress.IPv4Address) -> None:
    verdict = check_addresses([address], 80, (), ()) is None
    for prefix in ("::ffff:0:0", "64:ff9b::"):
        within = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) + int(address))
        assert (check_addresses([within], 80, (), ()) is None) is verdict
    if not address.is_global:  # Python's own table, where the two must agree: what it calls private is refused
        assert not verdict


def test_one_bad_address_among_good_ones_is_enough() -> None:
    answers = [ipaddress.ip_address(address) for address in ("8.8.8.8", "10.0.0.1")]
    assert check_addresses(answers, 80, (), ()) == "private address 10.0.0.1: CRAWL_ALLOW_NETWORKS opens networks"


def test_allowed_ports_are_the_webs_and_those_of_the_setting() -> None:
    site = [ipaddress.ip_address("8.8.8.8")]
    assert check_addresses(site, 80, (), ()) is None
    assert check_addresses(site, 443, (), ()) is None
    assert check_addresses(site, 6379, (), (8080,)) == "port 6379: CRAWL_ALLOW_PORTS opens ports"
    assert check_addresses(site, 8080, (), (8080,)) is None


def test_an_opened_network_is_open_on_every_port_and_opens_no_other() -> None:
    networks = [ipaddress.ip_network("10.1.0.0/16")]

    def verdict(address: str) -> str | None:
        return check_addresses([ipaddress.ip_address(address)], 6379, networks, ())

    assert verdict("10.1.2.3") is None
    assert verdict("::ffff:10.1.2.3") is None
    assert verdict("10.2.0.1")
    assert verdict("8.8.8.8")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.1/", "unusual spelling"),
        ("http://2130706433/", "unusual spelling"),
        ("http://0x7f000001/", "unusual spelling"),
        ("http://0x7f.1/", "unusual spelling"),
        ("http://0177.0.0.1/", "unusual spelling"),
        ("http://127.0.0.1./", "unusual spelling"),
        ("http://0/", "unusual spelling"),
        ("http://a.0x/", "unusual spelling"),
        ("http://%31%32%37.0.0.1/", "an invalid host name"),
        ("http://user@museum.org/", "user name"),
        ("http://:secret@museum.org/", "user name"),
        ("http://@museum.org/", "user name"),
        ("ftp://museum.org/", "must begin with http:// or https://"),
        ("file:///etc/passwd", "must begin with http:// or https://"),
        ("gopher://museum.org/", "must begin with http:// or https://"),
        ("data:text/plain,a", "must begin with http:// or https://"),
        ("http:///a", "without a host"),
        ("http://[::1/a", "invalid URL"),
        ("http://museum.org:99999/", "invalid URL"),
    ],
)
def test_a_url_may_be_refused_by_its_spelling(url: str, reason: str) -> None:
    assert reason in str(check_url(url))


@pytest.mark.parametrize(
    "url",
    ["http://museum.org/a.jpg", "https://1.1.1.1/", "http://[2606:4700::1]/", "http://7.museum/", "http://4chan/"],
)
def test_other_urls_are_judged_by_their_addresses(url: str) -> None:
    assert check_url(url) is None


def test_hosts_and_ports_are_taken_from_urls() -> None:
    assert [port_of(url) for url in ("http://a/", "https://a/", "https://a:80/", "http://[::1]:8080/")] == [
        *(80, 443, 80, 8080)
    ]
    assert literal("museum.org") is None
    assert literal("::1") == ipaddress.ip_address("::1")
