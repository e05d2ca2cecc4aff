"""Redis servers of one test, to be hurt: started, killed, slowed down, failed over."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from crawlproject.state import embedded
from tests.waiting import until


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
            options |= {"requirepass": password} | ({} if sentinel else {"masterauth": password})
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
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start, also after `kill`, and wait until it answers."""
        command = [embedded.find_server(), str(self.config), *(["--sentinel"] if self.sentinel else [])]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self.client.ping, despite=redis.ConnectionError, hint=f"see {self.folder}/log")

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.client.close()
        self.kill()


def speaks_tls() -> bool:
    """Tell whether the redis-server at hand is built with TLS; the embedded one is not."""
    command = [embedded.find_server(), "--port", "0", "--tls-port", "0", "--no-such-option", "1"]
    said = subprocess.run(
        command, capture_output=True, text=True, check=False
    )  # it names the first that it refuses
    return "tls-port" not in (said.stdout + said.stderr).partition(">>>")[2].partition("\n")[0]


class SlowLine:
    """A TCP proxy before a Redis that holds everything up, each way, by `delay` seconds."""

    def __init__(self, target: int, delay: float) -> None:
        self.target = target
        self.delay = delay
        self.port = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve; the URL is that of the slow Redis."""
        self._thread.start()
        assert self._started.wait(5)
        try:
            yield f"redis://127.0.0.1:{self.port}/0"
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                loop.call_later(self.delay, writer.write, data)
        loop.call_later(self.delay, writer.close)
