"""From a host name to addresses that may be connected to: looked up once, checked, cached."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import math
import random
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import aiodns
import pycares
from scrapy.exceptions import CannotResolveHostError
from scrapy.utils.datatypes import LocalCache
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IHostnameResolver, IHostResolution
from zope.interface import implementer

from crawlproject import config
from crawlproject.config import Config
from crawlproject.errors import AddressRefused, NoNameServer
from crawlproject.politeness.addresses import Address, AddressGuard, literal, port_of
from crawlproject.sources.domains import RECENT, canonical_host, domain_of, host_of_url

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

_FLAGS = pycares.ARES_FLAG_NOSEARCH  # names from URLs are complete: the search domain is not appended
_TRIES = 2  # of each name server
_TRY_TIMEOUT_S = 2.5  # of the first try; c-ares doubles it
_QUERY_TIMEOUT_S = 10.0  # for one name, however many servers there are
_PREPARE_S = 0.03  # how long leases wait for look-ups; their slots can bear that
_MIN_TTL_S, _MAX_TTL_S = 30.0, 3600.0  # bounds on an answer's TTL
_STALE_S = 3600.0  # how long an expired answer serves while a new one is looked up (RFC 8767)
_RETRY_FAILED_S = 30.0  # until a name that failed is looked up again
_FAILURE_KEPT_S = 600.0  # how long a failure is kept: a source may have a slot only every few minutes
_MAX_ADDRESSES = 2  # of a host: a connection that hangs is tried at each of them
# Errors of c-ares that mean: a server has answered, though there are no addresses.
_ANSWERED = {pycares.errno.ARES_ENODATA, pycares.errno.ARES_ENOTFOUND}
_PROBE_TIMEOUT_S = 5.0
_MAX_GOOD = 16  # domains with a name that resolved
_NAMES_PROBED = 3  # of these, and of the names that are wanted
_RECENT_ANSWER_S = 1.0  # no probe is sent this soon after an answer
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0  # between probes; doubled each time
_WEB_PORT, _NO_PORT = 80, 0
_MAX_NAMES = 20_000
_MAX_LOOKUPS = 512  # at a time, before more are begun ahead: names that hang must not have others wait
_OWN_S = 60.0  # an interface may get another address
_NOBODYS = {4: ipaddress.ip_address("240.0.0.1"), 6: ipaddress.ip_address("100::1")}  # reserved; discard-only
# What the kernel says of an address that is not here, also of a family that it has not got. Anything else, such as
# no more files to open, says nothing about the address.
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL}


class Answer(NamedTuple):
    """What is known of a host: its addresses, or why it has none; times on `loop.time()`."""

    addresses: tuple[Address, ...]
    failure: str
    renew: float
    until: float


@implementer(IHostResolution)
class _Resolution:
    def __init__(self, name: str) -> None:
        self.name = name

    def cancel(self) -> None:
        """Do nothing: the look-up goes on, and its result is ignored."""


@implementer(IHostnameResolver)
class Resolver:
    """Twisted's name resolver and the address guard: an address that it does not return is never connected to.

    The addresses checked are the addresses connected to, so that a second answer (DNS rebinding) changes nothing.
    c-ares sends the queries, without a thread for each and in bounded time; a name that gets no answer delays no
    other. Answers and failures are cached, bounded in number. An expired answer serves for a while longer, so
    that no request waits for DNS between its send slot and the wire.

    The frontier has a host looked up before it lets the first request for it go (`prepare`, `look_up`).

    `outage` says what is wrong while no name server answers; it is "" otherwise. An outage is detected when a
    query gets no answer: a probe follows, for the DNS root and for a few names, some that were resolved before and
    some that are wanted. If none is answered, the name is not to blame. Then names stay unknown, and probes follow
    until one is answered. So one name whose servers fail stops no others, not even where the name servers refuse
    the root.
    """

    def __init__(self, settings: Config, reactor: Any) -> None:
        self.settings = settings
        self.reactor = reactor
        self.users = 0  # the crawlers that share it
        self._guard = AddressGuard(
            allow=settings.allow_networks,
            deny=settings.deny_networks,
            ports=settings.allow_ports,
            nat64=settings.nat64_prefixes,
            is_own=is_own,
        )
        self._answers = LocalCache[str, Answer](_MAX_NAMES)
        self._lookups: dict[str, asyncio.Task[None]] = {}
        self._resolver: aiodns.DNSResolver | None = None
        self.outage = ""
        self._answered_at = -math.inf  # when a name server last answered
        self._recovered_at = -math.inf  # when the last outage ended
        self._good = LocalCache[str, str](_MAX_GOOD)  # domain to its host that resolved last
        self._wanted: list[str] = []  # hosts that were asked for last
        self._probing: asyncio.Task[bool] | None = None
        self._recovery: asyncio.Task[None] | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler, reactor: Any) -> Self:
        """Return the resolver of a process; Scrapy gives the CrawlerProcess as `crawler`."""
        return cls(config.load(crawler.settings), reactor)

    def install_on_reactor(self) -> None:
        """Become the resolver for all of Twisted's connections in this process."""
        self.reactor.installNameResolver(self)

    # The guard

    def refusal(self, url: str) -> str | None:
        """Return why the addresses of the URL's host are forbidden; None also while they are unknown."""
        answer = self._answer(host_of_url(url))
        return self._forbidden(answer.addresses, port_of(url)) if answer else None

    def failure(self, url: str) -> str | None:
        """Return why the name of the URL's host does not resolve; None when it does, or is not known."""
        answer = self._answer(host_of_url(url))
        return answer.failure or None if answer else None

    def knows(self, url: str) -> bool:
        """Tell whether the host of `url` has been looked up."""
        return self._answer(host_of_url(url)) is not None

    def may_be_reached(self, url: str) -> bool:
        """Tell whether the host of `url` is known to have addresses that may be connected to."""
        answer = self._answer(host_of_url(url))
        return answer is not None and not answer.failure and not self._forbidden(answer.addresses, port_of(url))

    def _forbidden(self, addresses: Iterable[Address], port: int) -> str | None:
        return self._guard.refusal(addresses, port)

    # Looking up

    async def prepare(self, urls: Iterable[str]) -> None:
        """Start looking up the hosts of `urls`; wait at most `_PREPARE_S` for those not yet known."""
        now = asyncio.get_running_loop().time()
        hosts = [host for host in set(map(host_of_url, urls)) if literal(host) is None]
        self._wanted = hosts or self._wanted
        unknown = set()
        for host in [] if self.outage else hosts:
            answer = self._answers.get(host)
            if (answer is None or answer.renew <= now) and len(self._lookups) < _MAX_LOOKUPS:
                task = self._start_lookup(host)
                if answer is None or answer.failure or answer.until <= now + _PREPARE_S:
                    unknown.add(task)
        if unknown:
            await asyncio.wait(unknown, timeout=_PREPARE_S)

    async def look_up(self, url: str) -> None:
        """Look up the host of `url`; afterwards `knows` is true, unless there is an `outage`."""
        if self.knows(url):
            return
        if self.outage:
            self._wanted = [host_of_url(url)]
        else:
            await asyncio.wait([self._start_lookup(host_of_url(url))])

    async def close(self) -> None:
        """End the look-ups under way, when the last crawler that uses it is done."""
        self.users -= 1
        if self.users > 0:
            return
        background = (self._probing, self._recovery)
        tasks = [*self._lookups.values(), *(task for task in background if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._resolver is not None:
            await self._resolver.close()
            self._resolver = None

    def _answer(self, host: str) -> Answer | None:
        if address := literal(host):
            return Answer((address,), "", 0, 0)
        answer = self._answers.get(host)
        if answer is None or answer.until <= asyncio.get_running_loop().time():
            return None
        self._answers.move_to_end(host)
        return answer

    def _start_lookup(self, host: str) -> asyncio.Task[None]:
        task = self._lookups.get(host)
        if task is None:
            task = self._lookups[host] = asyncio.create_task(self._look_up(host))
            task.add_done_callback(lambda _: self._lookups.pop(host, None))
        return task

    async def _look_up(self, host: str) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        try:
            addresses, ttl = await self._query(host)
            if not addresses:
                raise OSError("no address")
            if ttl:  # c-ares gives none for names that it knows itself: localhost, and those of /etc/hosts
                self._heard(host)
            ttl = min(max(ttl, _MIN_TTL_S), _MAX_TTL_S)
            answer = Answer(self._selected(addresses), "", now() + ttl, now() + ttl + _STALE_S)
        except (OSError, UnicodeError, aiodns.error.DNSError) as error:
            before = self._answer(host)
            if before is not None and not before.failure:
                # The known addresses stay: a name server that fails for a while must not make a site unreachable.
                answer = before._replace(renew=now() + _RETRY_FAILED_S)
            elif _is_no_answer(error) and (self.outage or not await self._servers_answer()):
                self._begin_outage(str(error.args[-1]))
                return
            elif _is_no_answer(error) and self._recovered_at > began:
                return  # the query fell into an outage that is over: it says nothing about the name
            else:
                text = str(error.args[-1] if error.args else "") or type(error).__name__
                answer = Answer(
                    (), f"{host[:253]} does not resolve: {text}", now() + _RETRY_FAILED_S, now() + _FAILURE_KEPT_S
                )
        self._answers.pop(host, None)  # it comes last
        self._answers[host] = answer

    # Outages of the name servers

    async def _servers_answer(self) -> bool:
        """Tell whether any name server answers; all look-ups without an answer share one probe."""
        began = asyncio.get_running_loop().time()
        if began - self._answered_at < _RECENT_ANSWER_S:
            return True
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe())
        return await asyncio.shield(self._probing) or self._answered_at >= began

    async def _probe(self) -> bool:
        # A new resolver: it caches nothing, and reads /etc/resolv.conf as it is now.
        try:
            resolver = self._open()
        except (OSError, pycares.AresError):
            return False
        in_outage = bool(self.outage)
        try:
            answered = await self._answers_probe(resolver)
            if answered and in_outage:
                resolver, self._resolver = self._resolver or self._open(), resolver
            return answered
        finally:
            await resolver.close()

    async def _answers_probe(self, resolver: aiodns.DNSResolver) -> bool:
        queries: dict[asyncio.Future[Any], str] = {resolver.query_dns(".", "SOA"): ""}
        wanted = list({domain_of(host): host for host in self._wanted}.values())
        chosen = random.sample(wanted, min(len(wanted), _NAMES_PROBED))
        for host in {*list(self._good.values())[-_NAMES_PROBED:], *chosen}:
            with suppress(UnicodeError):  # it is no name
                queries[resolver.query_dns(host, "A")] = host  # the servers alone, not /etc/hosts
        done, late = await asyncio.wait(queries, timeout=_PROBE_TIMEOUT_S)
        for query in late:
            query.cancel()
        answered = [query for query in done if _is_answer(query.exception())]
        for query in answered:
            self._heard(queries[query] if query.exception() is None else "")
        return bool(answered)

    def _heard(self, resolved: str = "") -> None:
        """Note that a name server has answered, and which host has `resolved`."""
        self._answered_at = asyncio.get_running_loop().time()
        if self.outage:
            self.outage, self._recovered_at = "", self._answered_at
            logger.info("Name servers answer again")
        if resolved:
            self._good.pop(domain_of(resolved), None)
            self._good[domain_of(resolved)] = resolved

    def _begin_outage(self, why: str) -> None:
        if not self.outage:
            servers = ", ".join(self.settings.dns_servers) or "the system's"
            self.outage = (
                f"no name server answers ({servers}; {why}): check CRAWL_DNS_SERVERS, or the network and "
                "/etc/resolv.conf of this machine; they are queried until one answers"
            )
            logger.warning("Requests to unresolved hosts wait: %s", self.outage)
            if self._recovery is not None:
                self._recovery.cancel()
            self._recovery = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        pause = _PAUSE_S
        while self.outage:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            try:
                await self._servers_answer()
            except Exception:
                logger.exception("Bug in querying the name servers; going on")

    def _selected(self, addresses: Sequence[Address]) -> tuple[Address, ...]:
        """Return the few to keep: the first of each family; if any is forbidden, that address alone."""
        for address in addresses:
            if self._forbidden([address], _WEB_PORT):
                return (address,)
        # Where some are open on every port, keep one that is open on the web's ports only: it is stricter.
        strict = [address for address in addresses if self._forbidden([address], _NO_PORT)]
        first = strict[:1] or list(addresses[:1])
        others = [address for address in addresses if address != first[0]]
        others.sort(key=lambda address: address.version == first[0].version)
        return (*first, *others[: _MAX_ADDRESSES - 1])

    async def _query(self, host: str) -> tuple[tuple[Address, ...], float]:
        """Return the name servers' answer: addresses in the order to try them, and their TTL in seconds."""
        if not host:
            raise OSError("it is no host name")
        try:
            async with asyncio.timeout(_QUERY_TIMEOUT_S):
                if self._resolver is None:
                    self._resolver = self._open()
                found = await self._resolver.getaddrinfo(host, type=socket.SOCK_STREAM)
        except TimeoutError:
            raise TimeoutError("the name servers did not answer in time") from None
        addresses = []
        for node in found.nodes:
            name, *_, scope = node.addr if len(node.addr) == 4 else (*node.addr, 0)
            address = ipaddress.ip_address(name.decode())
            addresses.append(ipaddress.IPv6Address(f"{address}%{scope}") if scope else address)
        return tuple(dict.fromkeys(addresses)), min((node.ttl for node in found.nodes), default=0)

    def _open(self) -> aiodns.DNSResolver:
        servers = self.settings.dns_servers or None
        return aiodns.DNSResolver(servers, timeout=_TRY_TIMEOUT_S, tries=_TRIES, rotate=True, flags=_FLAGS)

    # Twisted's interface

    def resolveHostName(  # noqa: N802
        self,
        resolutionReceiver: Any,  # noqa: N803
        hostName: str,  # noqa: N803
        portNumber: int = 0,  # noqa: N803
        addressTypes: Sequence[type] | None = None,  # noqa: N803
        transportSemantics: str = "TCP",  # noqa: N803
    ) -> Any:
        """Pass the addresses of a host to Twisted, if all may be connected to at this port.

        Raises:
            AddressRefused: they must not be connected to.
            CannotResolveHostError: the host is known to have no address.
            NoNameServer: no name server answers at the moment.

        """
        host = canonical_host(hostName)
        resolution = _Resolution(hostName)
        resolutionReceiver.resolutionBegan(resolution)
        answer = self._answer(host)
        if answer is not None:
            if answer.failure:
                raise CannotResolveHostError(answer.failure)
            if refused := self._forbidden(answer.addresses, portNumber):
                raise AddressRefused(refused)
            self._give(resolutionReceiver, answer, portNumber)
            return resolution
        if self.outage:
            raise NoNameServer(self.outage)

        def found(_: asyncio.Task[None]) -> None:
            late = self._answer(host)
            if late is not None and (refused := self._forbidden(late.addresses, portNumber)):
                logger.warning("No connection to %s: %s", host, refused)
                late = None
            self._give(resolutionReceiver, late, portNumber)

        self._start_lookup(host).add_done_callback(found)
        return resolution

    @staticmethod
    def _give(receiver: Any, answer: Answer | None, port: int) -> None:
        for address in answer.addresses if answer else ():
            kind = IPv4Address if address.version == 4 else IPv6Address
            receiver.addressResolved(kind("TCP", str(address), port))
        receiver.resolutionComplete()


def resolver_of_process(settings: Config) -> Resolver:
    """Return the resolver of all connections of this process, installing it if necessary.

    Without it, as when a user's own script runs the crawler, nothing would guard the addresses.
    """
    reactor = sys.modules.get("twisted.internet.reactor")  # not imported: that would install one
    present = getattr(reactor, "nameResolver", None)
    if not isinstance(present, Resolver):
        present = Resolver(settings, reactor)
        if reactor is not None:
            present.install_on_reactor()
    present.users += 1
    return present


def _is_no_answer(error: BaseException | None) -> bool:
    """Tell whether `error` means that no name server answered, neither with addresses nor that there are none."""
    if isinstance(error, aiodns.error.DNSError):
        return not _is_answer(error)
    return isinstance(error, TimeoutError)


def _is_answer(error: BaseException | None) -> bool:
    """Tell whether a name server has answered, with addresses or that there are none."""
    if isinstance(error, aiodns.error.DNSError):
        return bool(error.args) and error.args[0] in _ANSWERED
    return error is None


def is_own(address: Address) -> bool:
    """Tell whether an address belongs to an interface of this machine, as this process sees it.

    An address that a NAT translates, as clouds' public ones often are, or a container's host's, belongs to none.
    Where the kernel lets processes bind to any address (`net.ipv4.ip_nonlocal_bind`), none is known to be its own.
    As long as the kernel does not answer, every address may be.
    """
    try:
        return _is_own(address, int(time.monotonic() / _OWN_S))
    except OSError:
        return True


@lru_cache(RECENT)
def _is_own(address: Address, _: int) -> bool:
    # The kernel is asked about one address, not for a list: it knows all of them, secondary ones and whole
    # networks included, on every system, and without a library.
    return _can_bind(address) and not _can_bind(_NOBODYS[address.version])


def _can_bind(address: Address) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind((str(address), 0))
    except OSError as error:
        if error.errno in _NOT_HERE:
            return False
        raise
    return True
