"""TLS of sites: invalid certificates are refused or recorded (`CRAWL_TLS_FAILURES`), sessions are resumed."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from OpenSSL import SSL
from scrapy.core.downloader.contextfactory import _ScrapyClientContextFactory
from scrapy.exceptions import DownloadCancelledError, DownloadFailedError, StopDownload
from service_identity import CertificateError, VerificationError
from service_identity.hazmat import DNS_ID, IPAddress_ID, verify_service_identity
from service_identity.pyopenssl import extract_patterns
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from zope.interface import implementer

from crawlproject.errors import CrawlprojectError
from crawlproject.politeness.addresses import literal
from crawlproject.sources.domains import RECENT

_MAX_AGE_S = 3600.0  # how long a session is resumed after the host has shown its certificate
_MAX_SESSIONS = 4096
_MAX_BYTES = (
    8192  # of a session, mostly 1,000 to 3,000: keys, ticket, the host's certificate. 32 MiB for all, at most
)

# pyOpenSSL has no public way to OpenSSL's texts of errors, and to its encoding of sessions
_ffi, _lib = SSL._ffi, SSL._lib  # type: ignore[attr-defined]

Host = tuple[bytes, int]  # name and port


class Sessions:
    """TLS sessions of hosts seen lately: a connection that resumes one needs no full handshake.

    A host that resumes a session shows no certificate. So a session is kept only of a connection whose certificate
    was valid for this host, for an hour after that, and until a certificate of its chain expires. A request that
    fails where a session is resumed is tried again as after any failure, with full handshakes alone for an hour.

    Sessions are kept encoded: OpenSSL's own hold the whole chain, 12,000 bytes and more, and break with their
    connection. `now` returns the time of day, as certificates have it.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept: OrderedDict[Host, tuple[bytes, float]] = OrderedDict()  # session and its end, latest host last
        self._new: WeakKeyDictionary[SSL.Connection, tuple[Host, float]] = WeakKeyDictionary()  # not yet answered

    def resume(self, connection: SSL.Connection, host: Host) -> None:
        """Have a new connection offer the session of `host`, if there is one."""
        encoded, end = self._kept.get(host, (b"", 0.0))
        resumes = encoded != b"" and 0 < end - self._now() <= _MAX_AGE_S  # more if the clock was set back
        self._new[connection] = host, end if resumes else 0.0
        if resumes:
            start = _ffi.new("const unsigned char **", _ffi.from_buffer(encoded))
            session = _lib.d2i_SSL_SESSION(_ffi.NULL, start, len(encoded))
            _lib.SSL_set_session(connection._ssl, session)
            _lib.SSL_SESSION_free(session)

    def break_off(self, connection: SSL.Connection) -> None:
        """Keep none for an hour of the host of a connection that had no whole answer, if it offered a session."""
        host, end = self._new.pop(connection, ((b"", 0), 0.0))
        if end:
            self._put(host, b"", self._now() + _MAX_AGE_S)

    def keep(self, connection: SSL.Connection) -> None:
        """Keep the session of a connection whose certificate is valid, at its first answer.

        The tickets of TLS 1.3 come after the handshake, before the answer.
        """
        if (known := self._new.pop(connection, None)) is None:
            return
        (host, end), now = known, self._now()
        try:
            if chain := connection.get_verified_chain(as_cryptography=True):  # None if the session was resumed
                end = min(now + _MAX_AGE_S, *(one.not_valid_after_utc.timestamp() for one in chain))
        except ValueError:  # OpenSSL reads this certificate, `cryptography` does not
            return
        session = _lib.SSL_get_session(connection._ssl)
        size = _lib.i2d_SSL_SESSION(session, _ffi.NULL)
        former, until = self._kept.get(host, (b"", 0.0))
        is_forgotten = not former and until > now
        if end > now and 0 < size <= _MAX_BYTES and not is_forgotten:
            encoded = _ffi.new("unsigned char[]", size)
            _lib.i2d_SSL_SESSION(session, _ffi.new("unsigned char **", encoded))
            self._put(host, bytes(encoded), end)

    def _put(self, host: Host, encoded: bytes, end: float) -> None:
        self._kept[host] = encoded, end
        self._kept.move_to_end(host)
        if len(self._kept) > _MAX_SESSIONS:
            self._kept.popitem(last=False)


def _verify_error_text(error: int) -> str:
    """Return OpenSSL's text for a verification error."""
    text: bytes = _ffi.string(_lib.X509_verify_cert_error_string(error))
    return text.decode()


@implementer(IOpenSSLClientConnectionCreator)
class _Creator:
    """Makes connections to one host, as Twisted's `creator` does, which resume its session."""

    def __init__(self, factory: ContextFactory, creator: Any, host: Host) -> None:
        self.factory = factory
        self.creator = creator
        self.host = host

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:  # noqa: N802
        """Return a connection that verifies the certificate."""
        connection: SSL.Connection = self.creator.clientConnectionForTLS(protocol)
        if self.factory.records:
            connection.set_verify(SSL.VERIFY_PEER, self._note)
        self.factory.sessions.resume(connection, self.host)
        return connection

    def _note(self, connection: SSL.Connection, certificate: Any, error: int, depth: int, ok: int) -> bool:
        """Accept any certificate, and note what is wrong with it."""
        reason = "" if ok else _verify_error_text(error)
        if not reason and depth == 0:
            name = self.host[0].decode("ascii").lower()
            wanted = IPAddress_ID(name) if literal(name) else DNS_ID(name)
            try:
                verify_service_identity(extract_patterns(certificate), [wanted], [])
            except (CertificateError, VerificationError):
                reason = "certificate is for another name"
        if reason:
            self.factory.failures.setdefault(connection, reason)
        return True


class ContextFactory(_ScrapyClientContextFactory):
    """Scrapy's TLS settings for all connections of a crawl; if it `records`, invalid certificates are accepted.

    They share a context of OpenSSL. Scrapy makes one for each, which reads the authorities anew: 2 MB and 5 ms.
    """

    records = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sessions = Sessions()
        self.failures: WeakKeyDictionary[SSL.Connection, str] = WeakKeyDictionary()
        self._create: Callable[[Any], SSL.Connection] | None = None
        self._creator = lru_cache(RECENT)(self._new_creator)

    def _get_cert_options_kwargs(self) -> dict[str, Any]:
        return super()._get_cert_options_kwargs() | {"enableSessionTickets": True}

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:  # noqa: N802
        """Return the connection creator for a host."""
        return self._creator(hostname, port)

    def _new_creator(self, hostname: bytes, port: int) -> _Creator:
        creator = super().creatorForNetloc(hostname, port)
        self._create = creator._createConnection = self._create or creator._createConnection
        return _Creator(self, creator, (hostname, port))

    def answered(self, connection: Any) -> str | None:
        """Return the fault of the certificate of a connection that answered; without one, keep its session."""
        if not isinstance(connection, SSL.Connection):
            return None
        failure = self.failures.get(connection)
        if failure is None:
            self.sessions.keep(connection)
        return failure

    def failed(self, connection: Any, error: Exception) -> None:
        """Offer no session for an hour if handshake or first answer failed on a connection that offered one."""
        # As where this worker was too late for its slot, or wanted no more of an answer
        is_ours = isinstance(error, (CrawlprojectError, DownloadCancelledError, StopDownload))
        if isinstance(connection, SSL.Connection) and not is_ours:
            self.sessions.break_off(connection)


def tls_failure(error: DownloadFailedError) -> str | None:
    """Return what was wrong with a TLS connection, None if something else failed."""
    cause = error.__cause__
    if isinstance(cause, VerificationError):
        return "certificate is for another name"
    if isinstance(cause, SSL.Error):
        details = cause.args[0] if cause.args else ()
        return ", ".join(str(part[-1]) for part in details) or "connection aborted"
    return None
