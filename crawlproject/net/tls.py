"""What is wrong with a site's certificate: refused, or recorded (`CRAWL_TLS_FAILURES`)."""

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


def _words(error: int) -> str:
    """Return OpenSSL's words for an error of verification; pyOpenSSL has no public way to them."""
    text: bytes = SSL._ffi.string(SSL._lib.X509_verify_cert_error_string(error))  # type: ignore[attr-defined]
    return text.decode()


@implementer(IOpenSSLClientConnectionCreator)
class _Recording:
    """Makes connections to one host that go on with an invalid certificate, which is noted in `failures`."""

    def __init__(self, creator: Any, host: str, failures: WeakKeyDictionary[SSL.Connection, str]) -> None:
        self.creator = creator
        self.host = host
        self.failures = failures

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:  # noqa: N802
        """Return a connection that verifies, and minds nothing."""
        connection: SSL.Connection = self.creator.clientConnectionForTLS(protocol)
        connection.set_verify(SSL.VERIFY_PEER, self._note)
        return connection

    def _note(self, connection: SSL.Connection, certificate: Any, error: int, depth: int, ok: int) -> bool:
        reason = "" if ok else _words(error)
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
    """Scrapy's TLS settings, with certificates verified and failures recorded in place of refused."""

    failures: WeakKeyDictionary[SSL.Connection, str]

    def creatorForNetloc(self, hostname: bytes, port: int) -> Any:  # noqa: N802
        """Return what makes connections to a host."""
        creator = super().creatorForNetloc(hostname, port)
        return _Recording(creator, hostname.decode("ascii").lower(), self.failures)


def tls_failure(error: DownloadFailedError) -> str | None:
    """Return what was wrong with a secure connection, None if it was something else that failed."""
    for reason in getattr(error.__cause__, "reasons", ()):
        if isinstance(reason.value, VerificationError):
            return "certificate is for another name"
        if isinstance(reason.value, SSL.Error):
            details = reason.value.args[0] if reason.value.args else ()
            return ", ".join(str(part[-1]) for part in details) or "broken off"
    return None
