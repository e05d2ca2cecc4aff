"""Invalid certificates of sites: refused, or recorded (`CRAWL_TLS_FAILURES`)."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from OpenSSL import SSL
from scrapy.core.downloader.contextfactory import _ScrapyClientContextFactory
from scrapy.exceptions import DownloadFailedError
from service_identity import CertificateError, VerificationError
from service_identity.hazmat import DNS_ID, IPAddress_ID, verify_service_identity
from service_identity.pyopenssl import extract_patterns
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from zope.interface import implementer

from crawlproject.politeness.addresses import literal


def _verify_error_text(error: int) -> str:
    """Return OpenSSL's text for a verification error; pyOpenSSL has no public way to get it."""
    text: bytes = SSL._ffi.string(SSL._lib.X509_verify_cert_error_string(error))  # type: ignore[attr-defined]
    return text.decode()


@implementer(IOpenSSLClientConnectionCreator)
class _Recording:
    """Makes connections to one host that accept an invalid certificate and note the reason in `failures`."""

    def __init__(self, creator: Any, host: str, failures: WeakKeyDictionary[SSL.Connection, str]) -> None:
        self.creator = creator
        self.host = host
        self.failures = failures

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:  # noqa: N802
        """Return a connection that verifies the certificate, and accepts it in any case."""
        connection: SSL.Connection = self.creator.clientConnectionForTLS(protocol)
        connection.set_verify(SSL.VERIFY_PEER, self._note)
        return connection

    def _note(self, connection: SSL.Connection, certificate: Any, error: int, depth: int, ok: int) -> bool:
        reason = "" if ok else _verify_error_text(error)
        if not reason and depth == 0:
            wanted = IPAddress_ID(self.host) if literal(self.host) else DNS_ID(self.host)
            try:
                verify_service_identity(extract_patterns(certificate), [wanted], [])
            except (CertificateError, VerificationError):
                reason = "certificate is for another name"
        if reason:
            self.failures.setdefault(connection, reason)
        return True


class RecordingContextFactory(_ScrapyClientContextFactory):
    """Scrapy's TLS settings, with invalid certificates recorded rather than refused."""

    failures: WeakKeyDictionary[SSL.Connection, str]

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:  # noqa: N802
        """Return the connection creator for a host."""
        creator = super().creatorForNetloc(hostname, port)
        return _Recording(creator, hostname.decode("ascii").lower(), self.failures)


def tls_failure(error: DownloadFailedError) -> str | None:
    """Return what was wrong with a TLS connection, None if something else failed."""
    for reason in getattr(error.__cause__, "reasons", ()):
        if isinstance(reason.value, VerificationError):
            return "certificate is for another name"
        if isinstance(reason.value, SSL.Error):
            details = reason.value.args[0] if reason.value.args else ()
            return ", ".join(str(part[-1]) for part in details) or "connection aborted"
    return None
