"""TLS to the nodes of a Redis Cluster: connections that share a context.

redis-py makes one for each connection, reading the CAs of the machine: some 30 ms in which a worker stands still.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class Tls:
    """What connections to a cluster need for TLS; `options` are those of its URL, as redis-py names them."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._made: tuple[list[int], ssl.SSLContext] | None = None  # with when its files were written (ns)

    def context(self) -> ssl.SSLContext:
        """Return the context, made anew when its files have changed: certificates are renewed while workers run.

        With a CA of its own no other is trusted.

        Raises:
            OSError: a file cannot be read, or has no certificate or key.

        """
        written = [Path(self._options[name]).stat().st_mtime_ns for name in _FILES if name in self._options]
        if self._made is None or self._made[0] != written:
            context = ssl.create_default_context(cafile=self._options.get("ssl_ca_certs"))
            context.check_hostname = self._options.get("ssl_check_hostname", True)
            if "ssl_certfile" in self._options:
                context.load_cert_chain(self._options["ssl_certfile"], self._options.get("ssl_keyfile"))
            self._made = written, context
        return self._made[1]


def tls_of(options: Mapping[str, Any]) -> Tls | None:
    """Return what all connections of this process with these options share; None without any."""
    return _shared(tuple(sorted(options.items()))) if options else None


@cache
def _shared(options: tuple[tuple[str, Any], ...]) -> Tls:
    return Tls(dict(options))
