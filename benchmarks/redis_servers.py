"""Redis servers to be hurt: started, killed, suspended, failed over."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from crawlproject.state import embedded

_START_S = 60.0  # on a busy machine


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


class Server:
    """A redis-server on a port of its own, with an append-only file; `options` are of its configuration.

    With `tls`, further ones for TLS, it speaks nothing else.
    """

    def __init__(
        self,
        folder: Path,
        *,
        sentinel: bool = False,
        tls: Mapping[str, str] | None = None,
        password: str | None = None,
        **options: str,
    ) -> None:
        self.port = free_port()
        self.folder = folder / f"redis-{self.port}"
        self.folder.mkdir()
        self.sentinel = sentinel
        lines = [f"tls-port {self.port}", "port 0"] if tls else [f"port {self.port}"]
        lines += ["bind 127.0.0.1", f'dir "{self.folder}"', f'logfile "{self.folder}/log"']
        if not sentinel:
            lines += ['save ""', "appendonly yes"]
        if password:
            options = {"requirepass": password} | ({} if sentinel else {"masterauth": password}) | options
        options |= tls or {}
        lines += [f"{name.replace('_', '-')} {value}" for name, value in options.items()]
        self.config = self.folder / "redis.conf"
        self.config.write_text("\n".join(lines) + "\n")
        encrypted: dict[str, Any] = (
            {
                "ssl": True,
                "ssl_ca_certs": tls["tls_ca_cert_file"],
                "ssl_certfile": tls["tls_cert_file"],
                "ssl_keyfile": tls["tls_key_file"],
            }
            if tls
            else {}
        )
        self.client: Any = redis.Redis(
            host="127.0.0.1", port=self.port, password=password, retry=Retry(NoBackoff(), 0), **encrypted
        )
        self.start()

    @property
    def url(self) -> str:
        """Its URL, without the password."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start, also after `kill`, and wait until it answers.

        Raises:
            TimeoutError: it does not; the message names its log.

        """
        command = [embedded.find_server(), str(self.config), *(["--sentinel"] if self.sentinel else [])]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"Redis does not start within {_START_S:g} s: see {self.folder}/log")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False

    @property
    def append_only_file(self) -> Path:
        """The file that commands are appended to."""
        found = (path for path in self.folder.rglob("*.aof") if ".base." not in path.name)
        return max(found, key=lambda path: path.stat().st_mtime)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it, and the connection to it."""
        self.client.close()
        self.kill()
