"""TLS to the nodes of a Redis Cluster: connections that share a context.

redis-py makes one for each connection, reading the CAs of the machine: some 30 ms in which a worker stands still.
It has several connections to each shard, and asks once a second, over one more, who has them.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

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


class Encrypted(redis.asyncio.Connection):
    """A connection over TLS."""

    def __init__(self, tls: Tls, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls

    def _connection_arguments(self) -> dict[str, Any]:
        arguments: Mapping[str, Any] = super()._connection_arguments()
        return {**arguments, "ssl": self._tls.context()}


class BlockingEncrypted(redis.Connection):
    """The same for commands."""

    def __init__(self, tls: Tls, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._tls = tls

    def _connect(self) -> Any:
        plain = super()._connect()  # type: ignore[no-untyped-call]
        try:
            return self._tls.context().wrap_socket(plain, server_hostname=self.host)
        except OSError:
            plain.close()
            raise
