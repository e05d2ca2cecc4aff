"""Twisted's agent, which makes once for a site what is the same for all requests to it."""

# mypy: disable-error-code="no-untyped-call"
# Twisted's client has no types.

from __future__ import annotations

import re
from typing import Any

from scrapy.core.downloader.handlers.http11 import _BindAddressAgent
from scrapy.utils.datatypes import LocalCache
from twisted.web.client import URI

from crawlproject.sources.domains import RECENT

_PLAIN = re.compile(rb"(https?://[A-Za-z0-9_.:-]+)(/[!-~]*)?")  # an origin, and what is requested there

_sites = LocalCache[Any, tuple[URI, Any, bytes]](RECENT)  # with the endpoint, and the value of Host


class SiteAgent(_BindAddressAgent):
    """Scrapy's agent, for one request; to make the endpoint of its site takes longer than to write it."""

    def request(self, method: Any, uri: bytes, headers: Any = None, bodyProducer: Any = None) -> Any:  # noqa: N803
        """Return the response of a request."""
        found = _PLAIN.fullmatch(uri)
        if found is None:
            return super().request(method, uri, headers, bodyProducer)
        made = self._endpointFactory
        which = (found[1], made._policyForHTTPS, made._connectTimeout, made._bindAddress)
        if which not in _sites:
            site = URI.fromBytes(found[1])
            host = self._computeHostValue(site.scheme, site.host, site.port)
            _sites[which] = site, self._getEndpoint(site), host
        site, endpoint, host = _sites[which]
        if not headers.hasHeader(b"Host"):
            headers.addRawHeader(b"Host", host)
        key = (site.scheme, site.host, site.port)
        return self._requestWithEndpoint(key, endpoint, method, site, headers, bodyProducer, found[2] or b"/")
