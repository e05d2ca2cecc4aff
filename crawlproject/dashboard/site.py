"""The dashboard's pages, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from importlib import resources
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

from twisted.web.server import NOT_DONE_YET

from crawlproject.config import Config
from crawlproject.controls import halt, include, resume, set_rate
from crawlproject.dashboard.live_events import MOST_PAGES, Feed
from crawlproject.dashboard.sessions import LASTS_S, Sessions, TooManyAttempts
from crawlproject.models import thumbnail_type
from crawlproject.sources.names import source_name
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.state.health import fault_of
from crawlproject.status.reporter import Reporter
from crawlproject.status.source_status import source_statuses
from crawlproject.texts import one_line, printable
from crawlproject.webserver import Resource

logger = logging.getLogger(__name__)

_THUMBNAIL = re.compile(r"[0-9a-f]{2}/[A-Za-z0-9._%-]{1,204}\.(?:jpg|webp)")
_TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_CHANGE_S = 5.0  # that a change may take
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


class Refused(Exception):
    """A request that is refused: its HTTP `status`, and the reason as a sentence for people."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Dashboard(Resource):  # type: ignore[misc]
    """All that the dashboard serves. `thumbnail` reads a thumbnail from the storage by its name, and blocks.

    Without a session only the login page and the static files are served. Where no password is set, only requests
    that name this machine by an address or as localhost are answered: otherwise any web page could have a name of
    its own resolve to this machine (DNS rebinding), and read everything.
    """

    isLeaf = True  # noqa: N815 - Twisted's name

    def __init__(
        self, config: Config, state: State, reporter: Reporter, thumbnail: Callable[[str], bytes]
    ) -> None:
        super().__init__()
        self.state = state
        self.feed = Feed(state, reporter)
        self.sessions = Sessions(config.dashboard_password)
        self._thumbnail = thumbnail
        self._cookie = f"crawl_dashboard_{config.dashboard_port}"
        self._here = _HERE | {config.dashboard_address}
        static = resources.files("crawlproject.dashboard") / "static"
        self._static = {file.name: file.read_bytes() for file in static.iterdir() if "." in file.name}
        self._tasks: set[asyncio.Future[Any]] = set()

    def start(self) -> None:
        """Begin to send snapshots to open pages."""
        self.feed.start()

    async def stop(self) -> None:
        """Close the open pages' connections."""
        await self.feed.stop()

    def render(self, request: Any) -> Any:
        """Answer a request."""
        for name, value in _HEADERS.items():
            request.setHeader(name, value)
        task = asyncio.ensure_future(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return NOT_DONE_YET

    async def _answer(self, request: Any) -> None:
        gone: list[Any] = []
        request.notifyFinish().addBoth(gone.append)
        try:
            body = await self._in_time(self._route(request), None if request.method == b"GET" else _CHANGE_S)
        except Refused as refused:
            body = self._refusal(request, refused)
        except REDIS_TROUBLE as error:
            self.state.failed(error)
            body = self._refusal(request, Refused(503, fault_of(error)))
        except Exception:
            logger.exception("Bug in the dashboard")
            body = self._refusal(request, Refused(500, "internal error: see the monitor's log"))
        if body is not None and not gone:
            request.write(body)
            request.finish()

    async def _in_time(self, work: Coroutine[Any, Any, bytes | None], seconds: float | None) -> bytes | None:
        """Return what `work` does; raise TimeoutError when it takes too long.

        Not asyncio.timeout: the client of Redis can swallow a cancellation, on Python 3.11.
        """
        working = asyncio.ensure_future(work)
        self._tasks.add(working)
        working.add_done_callback(self._tasks.discard)
        await asyncio.wait((working,), timeout=seconds)
        if not working.done():
            working.cancel()
            raise TimeoutError
        return working.result()

    def _refusal(self, request: Any, refused: Refused) -> bytes:
        request.setResponseCode(refused.status)
        request.setHeader("Content-Type", "application/json")
        return one_line({"error": str(refused)}).encode()

    async def _route(self, request: Any) -> bytes | None:
        """Return the body of the answer; None when the answer is a stream."""
        self._check_host(request)
        method, path = request.method.decode("ascii", "replace"), request.path.decode("ascii", "replace")
        routes: dict[tuple[str, str], Callable[[Any], Awaitable[bytes | None]]] = {
            ("GET", "/"): self._page,
            ("GET", "/login"): self._login_page,
            ("POST", "/login"): self._log_in,
            ("POST", "/logout"): self._log_out,
            ("GET", "/events"): self._events,
            ("POST", "/halt"): self._halt,
            ("POST", "/include"): self._include,
            ("POST", "/resume"): self._resume,
            ("POST", "/rate"): self._rate,
        }
        method = "GET" if method == "HEAD" else method
        if answer := routes.get((method, path)):
            return await answer(request)
        if any(path == known for _, known in routes):
            raise Refused(405, f"{path} does not accept {printable(method)}")
        if method == "GET" and path.startswith("/static/"):
            return self._file(request, path.removeprefix("/static/"))
        if method == "GET" and path.startswith("/thumbnails/"):
            return await self._picture(request, unquote(path.removeprefix("/thumbnails/")))
        raise Refused(404, "no such page")

    # Who may use it

    def _check_host(self, request: Any) -> None:
        if self.sessions.password is not None:
            return  # the cookie is for one host alone
        host = _header(request, b"host")
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if name not in self._here and not _is_loopback(name):
            raise Refused(421, "this dashboard has no password: open it as localhost or by its address")

    def _session(self, request: Any) -> str:
        """Return the cookie of the session; a new one where none is needed."""
        cookie = (request.getCookie(self._cookie.encode()) or b"").decode("ascii", "replace")
        if self.sessions.is_valid(cookie):
            return cookie
        if self.sessions.password is not None:
            raise Refused(401, "log in")
        return self._begin(request)

    def _begin(self, request: Any) -> str:
        cookie = self.sessions.new()
        request.addCookie(self._cookie, cookie, path="/", max_age=str(LASTS_S), httpOnly=True, sameSite="strict")
        return cookie

    def _check_change(self, request: Any) -> None:
        """Refuse a change that does not come from our own page."""
        token = _header(request, b"x-csrf-token")
        if not self.sessions.is_token(self._session(request), token):
            raise Refused(403, "the page is older than this monitor: reload it")

    # Pages

    async def _page(self, request: Any) -> bytes | None:
        try:
            self._session(request)
        except Refused:
            return self._go(request, "/login")
        return self._file(request, "index.html")

    async def _login_page(self, request: Any) -> bytes:
        return self._file(request, "login.html") if self.sessions.password else self._go(request, "/")

    async def _log_in(self, request: Any) -> bytes:
        form = request.args.get(b"password", [b""])
        try:
            if self.sessions.is_password(form[0].decode(errors="replace")):
                self._begin(request)
                return self._go(request, "/")
        except TooManyAttempts:
            logger.warning("Dashboard: too many wrong passwords, the last from %s", request.getClientAddress())
            request.setHeader("Retry-After", "60")
            raise Refused(429, "too many wrong passwords: try again in a minute") from None
        return self._go(request, "/login?wrong")

    async def _log_out(self, request: Any) -> bytes:
        self._check_change(request)
        request.addCookie(self._cookie, "", path="/", max_age="0", httpOnly=True, sameSite="strict")
        return b"{}"

    def _go(self, request: Any, path: str) -> bytes:
        request.setResponseCode(303)
        request.setHeader("Location", path)
        return b""

    def _file(self, request: Any, name: str) -> bytes:
        if name not in self._static:
            raise Refused(404, "no such page")
        request.setHeader("Content-Type", f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8")
        return self._static[name]

    async def _picture(self, request: Any, name: str) -> bytes:
        self._session(request)
        if not _THUMBNAIL.fullmatch(name):
            raise Refused(404, "no such thumbnail")
        try:
            body = await asyncio.to_thread(self._thumbnail, name)
        except Exception as error:  # the errors of each storage are its own
            raise Refused(404, f"no such thumbnail: {type(error).__name__}") from None
        request.setHeader("Content-Type", thumbnail_type(name))
        request.setHeader("Cache-Control", "private, max-age=600")
        return body

    async def _events(self, request: Any) -> bytes | None:
        token = self.sessions.token(self._session(request))
        if len(self.feed.pages) >= MOST_PAGES:
            raise Refused(503, f"{MOST_PAGES} pages are already open")
        request.setHeader("Content-Type", "text/event-stream; charset=utf-8")
        request.setHeader("X-Accel-Buffering", "no")  # else an nginx in front of us buffers events
        if request.method == b"HEAD":
            return b""
        await self.feed.open(request, {"token": token, "password": self.sessions.password is not None})
        return None

    # Changes by the operator

    async def _halt(self, request: Any) -> bytes:
        source, _ = self._change(request)
        await halt(self.state, [source], _who(request))
        return await self._done(request, source, "halted")

    async def _resume(self, request: Any) -> bytes:
        source, _ = self._change(request)
        await resume(self.state, [source], _who(request))
        return await self._done(request, source, "resumed")

    async def _include(self, request: Any) -> bytes:
        source, _ = self._change(request)
        [now] = (await include(self.state, [source], _who(request))).values()
        return await self._done(request, source, "still excluded by CRAWL_EXCLUDE" if now == "file" else now)

    async def _rate(self, request: Any) -> bytes:
        source, change = self._change(request)
        value = str(change.get("rate", "")).strip()
        try:
            await set_rate(self.state, source, value, _who(request))
        except ValueError as error:
            raise Refused(400, str(error)) from None
        what = "rate by size again" if value == "auto" else f"rate set to {value} requests a second"
        return await self._done(request, source, what)

    def _change(self, request: Any) -> tuple[str, dict[str, Any]]:
        """Return the source that a change is for, and the whole of its JSON."""
        self._check_change(request)
        try:
            change = json.loads(request.content.read())
            return source_name(change["source"]), change
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Refused(400, f"invalid request: {printable(str(error))}") from None

    async def _done(self, request: Any, source: str, what: str) -> bytes:
        address = request.getClientAddress()
        logger.info(
            "Dashboard: %s: %s, by %s",
            source,
            what,
            getattr(address, "host", address),
            extra={"source": source},
        )
        request.setHeader("Content-Type", "application/json")
        [row] = [row async for _, row in source_statuses(self.state, [source])]
        return one_line({"source": source, "row": {**row._asdict(), "trouble": row.trouble}}).encode()


def _who(request: Any) -> str:
    """Say for the audit trail where an order comes from."""
    address = request.getClientAddress()
    return f"dashboard, {getattr(address, 'host', address)}"


def _header(request: Any, name: bytes) -> str:
    """Return a header of a request, whatever its bytes are; "" where there is none."""
    value: bytes = request.getHeader(name) or b""
    return value.decode("ascii", "replace")


def _is_loopback(name: str) -> bool:
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
