"""From a host's name to the addresses that may be asked: looked up once, checked, remembered."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import socket
import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlsplit

import aiodns
import idna
import pycares
from scrapy.exceptions import CannotResolveHostError
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.interfaces import IHostnameResolver, IHostResolution
from zope.interface import implementer

from crawlproject import config
from crawlproject.config import Config
from crawlproject.errors import AddressRefused, NoNameServer
from crawlproject.politeness.addresses import RECENT, Address, check_addresses, literal, port_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

_FLAGS = pycares.ARES_FLAG_NOSEARCH  # names of strangers are whole: none is asked within our own domain
_TRIES = 2  # of each name server
_A_TRY_S = 2.5  # the first; c-ares doubles it
_PATIENCE_S = 10.0  # for one name, however many servers there are
_A_MOMENT_S = 0.03  # that leases wait for names; their slots bear that
_LEAST_S, _MOST_S = 30.0, 3600.0  # that an answer is good for, whatever its TTL
_STALE_S = 3600.0  # more that one serves while a new one is looked up (RFC 8767)
_FAILED_S = 30.0  # until a name that failed is looked up again
_FAILED_SERVES_S = 600.0  # that it is known to have failed: a source may have a slot once in minutes
_MOST_ADDRESSES = 2  # of a host: a connection that hangs is tried at each of them
# What c-ares says where no server has answered, or the one that did could not.
_NO_WORD = {
    pycares.errno.ARES_ETIMEOUT,
    pycares.errno.ARES_ECONNREFUSED,
    pycares.errno.ARES_ESERVFAIL,
    pycares.errno.ARES_EREFUSED,
    pycares.errno.ARES_ENOTIMP,
    pycares.errno.ARES_EFORMERR,
    pycares.errno.ARES_EBADRESP,
    pycares.errno.ARES_EOF,
    pycares.errno.ARES_ECANCELLED,  # by us, with the resolver that has been replaced
    pycares.errno.ARES_EDESTRUCTION,
}
_A_PROBE_S = 5.0  # that name servers have to say something
_LATELY_S = 1.0  # after a word of theirs in which they are not asked for one
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0  # between probes; doubled each time
_WEB_PORT, _NO_PORT = 80, 0
_MOST_NAMES = 20_000
_MOST_LOOKED_FOR = 512  # at a time; those beyond are when their requests are parked


class Answer(NamedTuple):
    """What is known of a host: its addresses, or why there are none; times on `loop.time()`."""

    addresses: tuple[Address, ...]
    failure: str
    renew: float
    until: float


@implementer(IHostResolution)
class _Resolution:
    def __init__(self, name: str) -> None:
        self.name = name

    def cancel(self) -> None:
        """Do nothing: who no longer asks does not look at the answer."""


@implementer(IHostnameResolver)
class Resolver:
    """Twisted's name resolver, and the address guard: what it does not give out is not connected to.

    The addresses that were checked are the ones connected to, so that a second answer (DNS rebinding) changes
    nothing. Names are asked for by c-ares, without a thread for each, in bounded time; a name that does not
    answer holds up nobody else. Answers and failures are remembered, bounded in number. One that has run out
    serves for a while longer, so that no request waits for a name between its send slot and the wire.

    The frontier has a name looked up before it lets its first request go (`prepare`, `look_up`).

    `trouble` says what is wrong while no name server answers anything; "" while one does. That is found out when
    a name gets no word: if the root of all names does not either, nor a name that was found before, it is no
    fault of that name's. Then nothing is looked up, and unknown names stay unknown, until one of the two is
    answered.
    """

    def __init__(self, settings: Config, reactor: Any) -> None:
        self.settings = settings
        self.reactor = reactor
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._resolver: aiodns.DNSResolver | None = None
        self.trouble = ""
        self._heard = -math.inf  # when a name server said something
        self._recovered = -math.inf  # when they did so for the first time after trouble
        self._probing: asyncio.Task[bool] | None = None
        self._recovery: asyncio.Task[None] | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler, reactor: Any) -> Self:
        """Return the resolver of a process; Scrapy gives the CrawlerProcess as `crawler`."""
        return cls(config.load(crawler.settings), reactor)

    def install_on_reactor(self) -> None:
        """Become the resolver of all of Twisted's connections in this process."""
        self.reactor.installNameResolver(self)

    # The guard

    def refusal(self, url: str) -> str | None:
        """Return why the addresses of the URL's host may not be reached; None also while they are not known."""
        answer = self._answer(_host(url))
        return self._forbidden(answer.addresses, port_of(url)) if answer else None

    def failure(self, url: str) -> str | None:
        """Return why the name of the URL's host does not resolve, None when it does, or is not known."""
        answer = self._answer(_host(url))
        return answer.failure or None if answer else None

    def knows(self, url: str) -> bool:
        """Tell whether the host of `url` was looked up."""
        return self._answer(_host(url)) is not None

    def may_be_reached(self, url: str) -> bool:
        """Tell whether it is known that the host of `url` has addresses, and that they may be asked."""
        return self.knows(url) and self.refusal(url) is None and self.failure(url) is None

    def _forbidden(self, addresses: Iterable[Address], port: int) -> str | None:
        return check_addresses(addresses, port, self.settings.allow_networks, self.settings.allow_ports)

    # Looking up

    async def prepare(self, urls: Iterable[str]) -> None:
        """See to it that the hosts of `urls` are known soon; wait a moment for those that are not."""
        if self.trouble:
            return
        now = asyncio.get_running_loop().time()
        unknown = set()
        for host in set(map(_host, urls)):
            answer = self._answers.get(host)
            if literal(host) is not None or (answer is not None and answer.renew > now):
                continue
            if len(self._looking) < _MOST_LOOKED_FOR:
                task = self._look(host)
                if answer is None or answer.failure or answer.until <= now + _A_MOMENT_S:
                    unknown.add(task)
        if unknown:
            await asyncio.wait(unknown, timeout=_A_MOMENT_S)

    async def look_up(self, url: str) -> None:
        """Find out about the host of `url`; afterwards `knows` it, unless there is `trouble`."""
        if not self.knows(url) and not self.trouble:
            await asyncio.wait([self._look(_host(url))])

    async def close(self) -> None:
        """End the look-ups under way."""
        beside = (self._probing, self._recovery)
        tasks = [*self._looking.values(), *(task for task in beside if task is not None)]
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

    def _look(self, host: str) -> asyncio.Task[None]:
        task = self._looking.get(host)
        if task is None:
            task = self._looking[host] = asyncio.create_task(self._find(host))
            task.add_done_callback(lambda _: self._looking.pop(host, None))
        return task

    async def _find(self, host: str) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        try:
            addresses, ttl = await self._ask(host)
            if not addresses:
                raise OSError("no address")
            self._heard = now()
            ttl = min(max(ttl, _LEAST_S), _MOST_S)
            answer = Answer(self._chosen(addresses), "", now() + ttl, now() + ttl + _STALE_S)
        except (OSError, UnicodeError, aiodns.error.DNSError) as error:
            before = self._answer(host)
            if before is not None and not before.failure:
                # A server that fails for a while takes no site away whose addresses we know.
                answer = before._replace(renew=now() + _FAILED_S)
            elif _is_silence(error) and not await self._answering():
                self._wait_for_an_answer(str(error.args[-1]))
                return
            elif _is_silence(error) and self._recovered > began:
                return  # nobody was there to ask
            else:
                text = str(error.args[-1] if error.args else "") or type(error).__name__
                answer = Answer(
                    (), f"{host[:253]} does not resolve: {text}", now() + _FAILED_S, now() + _FAILED_SERVES_S
                )
        self._answers[host] = answer
        self._answers.move_to_end(host)
        while len(self._answers) > _MOST_NAMES:
            self._answers.popitem(last=False)

    # Name servers that are away

    async def _answering(self) -> bool:
        """Tell whether the name servers say anything; all whose names get no word share one probe."""
        if asyncio.get_running_loop().time() - self._heard < _LATELY_S:
            return True
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe())
        return await asyncio.shield(self._probing)

    async def _probe(self) -> bool:
        # Asked by a resolver of its own, which remembers nothing and has read /etc/resolv.conf as it is now.
        try:
            resolver = self._open()
        except (OSError, pycares.AresError):
            return False
        try:
            heard = await self._hears(resolver)
            if heard and self.trouble:
                resolver, self._resolver = self._resolver or self._open(), resolver
            return heard
        finally:
            await resolver.close()

    async def _hears(self, resolver: aiodns.DNSResolver) -> bool:
        questions: list[asyncio.Future[Any]] = [resolver.query_dns(".", "SOA")]
        if known := next((host for host, answer in reversed(self._answers.items()) if answer.addresses), None):
            questions.append(resolver.getaddrinfo(known, type=socket.SOCK_STREAM))
        done, late = await asyncio.wait(questions, timeout=_A_PROBE_S)
        for question in late:
            question.cancel()
        if all([_is_silence(question.exception()) for question in done]):  # noqa: C419 - each is to be looked at
            return False
        self._heard = asyncio.get_running_loop().time()
        return True

    def _wait_for_an_answer(self, why: str) -> None:
        if not self.trouble:
            servers = ", ".join(self.settings.dns_servers) or "the system's"
            self.trouble = (
                f"no name server answers ({servers}; {why}): check CRAWL_DNS_SERVERS, or the network and "
                "/etc/resolv.conf of this machine; they are queried until one answers"
            )
            logger.warning("Hosts with unknown addresses wait: %s", self.trouble)
            self._recovery = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        pause, answering = _PAUSE_S, False
        while not answering:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            try:
                answering = await self._answering()
            except Exception:
                logger.exception("Bug in querying the name servers; going on")
        self.trouble, self._recovered = "", asyncio.get_running_loop().time()
        logger.info("Name servers answer again")

    def _chosen(self, addresses: Sequence[Address]) -> tuple[Address, ...]:
        """Return the few to keep: of each family the first; if there is one that may not be asked, that alone."""
        for address in addresses:
            if self._forbidden([address], _WEB_PORT):
                return (address,)
        # One that only the web's ports are open of speaks for all, where others are open on every port.
        closed = [address for address in addresses if self._forbidden([address], _NO_PORT)]
        first = closed[:1] or list(addresses[:1])
        others = [address for address in addresses if address != first[0]]
        others.sort(key=lambda address: address.version == first[0].version)
        return (*first, *others[: _MOST_ADDRESSES - 1])

    async def _ask(self, host: str) -> tuple[tuple[Address, ...], float]:
        """Return what the name servers say: addresses in the order to try them in, seconds that they are good."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
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
        return aiodns.DNSResolver(servers, timeout=_A_TRY_S, tries=_TRIES, rotate=True, flags=_FLAGS)

    # Twisted's interface

    def resolveHostName(  # noqa: N802
        self,
        resolutionReceiver: Any,  # noqa: N803
        hostName: str,  # noqa: N803
        portNumber: int = 0,  # noqa: N803
        addressTypes: Sequence[type] | None = None,  # noqa: N803
        transportSemantics: str = "TCP",  # noqa: N803
    ) -> Any:
        """Give out the addresses of a host that may be asked at a port.

        Raises:
            AddressRefused: they may not.
            CannotResolveHostError: it is known that there are none.
            NoNameServer: that cannot be found out at present.

        """
        host = _ascii(hostName)
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
        if self.trouble:
            raise NoNameServer(self.trouble)

        def found(_: asyncio.Task[None]) -> None:
            late = self._answer(host)
            if late is not None and (refused := self._forbidden(late.addresses, portNumber)):
                logger.warning("No connection to %s: %s", host, refused)
                late = None
            self._give(resolutionReceiver, late, portNumber)

        self._look(host).add_done_callback(found)
        return resolution

    @staticmethod
    def _give(receiver: Any, answer: Answer | None, port: int) -> None:
        for address in answer.addresses if answer else ():
            kind = IPv4Address if address.version == 4 else IPv6Address
            receiver.addressResolved(kind("TCP", str(address), port))
        receiver.resolutionComplete()


def resolver_of_process(settings: Config) -> Resolver:
    """Return the resolver that all connections of this process go by; installed, if it was not.

    Without it, as when a script of one's own runs the crawler, nothing would guard the addresses.
    """
    reactor = sys.modules.get("twisted.internet.reactor")  # not imported: that would install one
    present = getattr(reactor, "nameResolver", None)
    if not isinstance(present, Resolver):
        present = Resolver(settings, reactor)
        if reactor is not None:
            present.install_on_reactor()
    return present


def _is_silence(error: BaseException | None) -> bool:
    """Tell whether no name server has answered: neither with addresses nor that there are none."""
    if isinstance(error, aiodns.error.DNSError):
        return bool(error.args) and error.args[0] in _NO_WORD
    return isinstance(error, TimeoutError)


@lru_cache(RECENT)
def _host(url: str) -> str:
    return _ascii(urlsplit(url).hostname or "")


def _ascii(host: str) -> str:
    """Return a host as in a URL: lower case, `xn--` where it is not ASCII. Twisted hands it out in Unicode."""
    host = host.lower()
    if not host.isascii():
        with suppress(UnicodeError):  # no name that DNS could know
            return idna.encode(host, uts46=True).decode()
    return host
