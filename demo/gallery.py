"""A web server, on loopback, that plays several sources: each folder below `--root` is one, with its own port.

    python -m demo.gallery --root DIR --log FILE [--ready FILE] [--address IP]

A file of the folder is answered with 200, a path ending in `.gone` with 410, anything else with 404. What
else a source does is up to `faults.json` in its folder, which may be exchanged while the server runs: see
`Fault` and `set_faults`. Before a request is answered the log gets one JSON line for it: see `Arrival`.
SIGTERM ends the server.

`Gallery` runs it as a process of its own, so that it shares no interpreter with what is being tested.
"""

# mypy: disable-error-code="no-untyped-call"
# Most of Twisted's web half has no types.

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO, TypedDict, cast
from urllib.parse import unquote

from twisted.internet import reactor as installed_reactor
from twisted.internet.posixbase import PosixReactorBase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

LOOPBACK = "127.0.0.1"
FAULTS = "faults.json"
ANY_PATH = "/*"  # in faults.json: every path that has no fault of its own
START_TIMEOUT = 20.0  # seconds until the ports must listen
STOP_TIMEOUT = 5.0  # seconds from SIGTERM to SIGKILL

CONTENT_TYPES = {
    ".avif": "image/avif",
    ".bmp": "image/bmp",
    ".gif": "image/gif",
    ".html": "text/html; charset=utf-8",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".tif": "image/tiff",
    ".txt": "text/plain; charset=utf-8",
    ".webp": "image/webp",
}

reactor = cast(PosixReactorBase, installed_reactor)


class Arrival(TypedDict):
    """One line of the log."""

    t: float  # time.time() when the request had been read
    since: float  # the earliest moment at which it may have come: this process may have stood still
    source: str
    path: str  # as sent, the query included
    status: int | None  # None: the connection was dropped


class Fault(TypedDict, total=False):
    """How the requests of a path are answered.

    `faults.json` maps paths (decoded, without the query) to faults; `/*` stands for all paths not named.
    """

    status: int  # default: what the path would be answered with anyway
    headers: dict[str, str]  # on top of, or in place of, the usual ones; Location for a redirect
    body: str  # in place of the usual one
    delay: float  # seconds before the answer
    drop: bool  # close the connection instead of answering
    times: int  # this many requests, then as if there were no fault; default: all requests


def set_faults(folder: Path, faults: Mapping[str, Fault]) -> None:
    """Put a source's faults in place, atomically; a running server counts `times` from the start again."""
    _write_json(folder / FAULTS, faults)


def _write_json(path: Path, value: object) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps(value), encoding="utf-8")
    draft.replace(path)


class Ticks:
    """When the event loop last came round."""

    EVERY_S = 0.01

    def __init__(self) -> None:
        self.note()

    def note(self) -> None:
        """Note it, and do so again."""
        self.last = time.time()
        reactor.callLater(self.EVERY_S, self.note)


class SourceResource(Resource):
    """Everything below one source's root URL."""

    isLeaf = True  # noqa: N815 - Twisted's name

    def __init__(self, folder: Path, log: TextIO, ticks: Ticks) -> None:
        super().__init__()
        self.folder = folder
        self.log = log
        self.ticks = ticks
        self._faults: dict[str, Fault] = {}
        self._faults_version: tuple[int, int] | None = None  # inode and time of change of the file last read
        self._taken: Counter[str] = Counter()  # requests each fault has answered

    def render_GET(self, request: Request) -> int:  # noqa: N802 - Twisted's name
        """Log the request, and answer it now or after its delay."""
        path = "/" + unquote(request.path.decode("latin-1")).lstrip("/")
        fault = self._take_fault(path)
        status = None if fault.get("drop") else fault.get("status", self._usual_status(path))
        arrival = Arrival(
            t=time.time(),
            since=self.ticks.last,
            source=self.folder.name,
            path=request.uri.decode("latin-1"),
            status=status,
        )
        self.log.write(json.dumps(arrival) + "\n")
        if delay := fault.get("delay"):
            answer = reactor.callLater(delay, self._answer, request, path, status, fault)
            # The errback runs when the client hangs up, which it can only do before the answer.
            request.notifyFinish().addErrback(lambda _: answer.cancel() if answer.active() else None)
        else:
            self._answer(request, path, status, fault)
        return NOT_DONE_YET

    def _answer(self, request: Request, path: str, status: int | None, fault: Fault) -> None:
        if status is None:
            request.loseConnection()
            return
        if status == self._usual_status(path) == HTTPStatus.OK:
            content_type = CONTENT_TYPES.get(Path(path).suffix.lower(), "application/octet-stream")
            body = self._file(path).read_bytes()
        else:
            content_type = CONTENT_TYPES[".txt"]
            body = f"{status}\n".encode()
        body = fault["body"].encode() if "body" in fault else body
        request.setResponseCode(status)
        request.setHeader("Content-Type", content_type)
        request.setHeader("Content-Length", str(len(body)))
        for name, value in fault.get("headers", {}).items():
            request.setHeader(name, value)
        request.write(body)
        request.finish()

    def _file(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def _usual_status(self, path: str) -> int:
        if path.endswith(".gone"):
            return HTTPStatus.GONE
        if ".." in Path(path).parts or not self._file(path).is_file():
            return HTTPStatus.NOT_FOUND
        return HTTPStatus.OK

    def _take_fault(self, path: str) -> Fault:
        """Return the fault that answers this request, counting it; an empty one for none."""
        self._reread_faults()
        key = path if path in self._faults else ANY_PATH
        fault = self._faults.get(key, Fault())
        if self._taken[key] >= fault.get("times", float("inf")):
            return Fault()
        self._taken[key] += 1
        return fault

    def _reread_faults(self) -> None:
        file = self.folder / FAULTS
        try:
            stat = file.stat()
        except FileNotFoundError:
            self._faults, self._faults_version = {}, None
            return
        version = (stat.st_ino, stat.st_mtime_ns)
        if version != self._faults_version:
            faults: dict[str, Fault] = json.loads(file.read_text(encoding="utf-8"))
            self._faults = {"/" + path.lstrip("/"): fault for path, fault in faults.items()}
            self._faults_version = version
            self._taken.clear()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m demo.gallery", description="Serve folders as image sources.")
    parser.add_argument("--root", type=Path, required=True, help="each folder in it becomes a source")
    parser.add_argument("--log", type=Path, required=True, help="one JSON line a request is appended to it")
    parser.add_argument(
        "--ready", type=Path, help="gets {source: base URL} once all ports listen (default: standard output)"
    )
    parser.add_argument("--address", default=LOOPBACK, help="where it listens (default: %(default)s)")
    arguments = parser.parse_args()
    folders = sorted(folder for folder in arguments.root.iterdir() if folder.is_dir())
    if not folders:
        parser.error(f"no folders in {arguments.root}")
    # Line-buffered: a request is in the log before it is answered, whatever becomes of this process.
    with arguments.log.open("a", buffering=1, encoding="utf-8") as log:
        urls, ticks = {}, Ticks()
        for folder in folders:
            site = Site(SourceResource(folder, log, ticks))
            port = reactor.listenTCP(0, site, backlog=1024, interface=arguments.address)
            urls[folder.name] = f"http://{arguments.address}:{port.getHost().port}"
        # On a busy machine, requests that left in time would be logged late, as a burst.
        with suppress(PermissionError):  # not allowed for everybody
            os.nice(-10)
        # Not before the reactor runs: until then SIGTERM would simply kill.
        if arguments.ready:
            reactor.callWhenRunning(_write_json, arguments.ready, urls)
        else:
            reactor.callWhenRunning(print, json.dumps(urls, indent=2), flush=True)
        reactor.run()


class Gallery:
    """The server of the folders in `root` as a process, from entering the context to leaving it.

    The log is appended to: a second gallery may go on with the first one's.
    """

    def __init__(self, root: Path, log: Path) -> None:
        self.root = root.absolute()
        self.log = log.absolute()
        self.urls: dict[str, str] = {}  # base URL without a slash at its end, by source
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        ready = self.log.with_name(f"{self.log.name}.ready")
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "demo.gallery", "--root", str(self.root), "--log", str(self.log)]
        self._process = subprocess.Popen(
            [*command, "--ready", str(ready)], cwd=Path(__file__).resolve().parents[1]
        )
        try:
            self.urls = self._wait_until(ready)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until(self, ready: Path) -> dict[str, str]:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT
        while not ready.exists():
            if self._process.poll() is not None:
                raise RuntimeError(f"the gallery of {self.root} ended with status {self._process.returncode}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the gallery of {self.root} did not listen within {START_TIMEOUT:.0f} s")
            time.sleep(0.02)
        urls: dict[str, str] = json.loads(ready.read_text(encoding="utf-8"))
        ready.unlink()
        return urls

    def arrivals(self) -> list[Arrival]:
        """Return the requests so far, in their order; every request that has been answered is among them."""
        # A last line without its end is still being written.
        lines = self.log.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def stop(self) -> None:
        """End the server, if it runs; its ports refuse connections from here on."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


if __name__ == "__main__":
    main()
