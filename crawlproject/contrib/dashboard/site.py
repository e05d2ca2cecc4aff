"""The dashboard's pages, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from importlib import resources
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from twisted.web.server import NOT_DONE_YET

from crawlproject.contrib.dashboard.live_events import Feed
from crawlproject.contrib.dashboard.plugin import DashboardSettings
from crawlproject.contrib.dashboard.sessions import LASTS_S, Sessions, TooManyAttempts
from crawlproject.controls import halt, include, resume, set_rate
from crawlproject.plugins import content_type_of, loaded
from crawlproject.sources.names import source_name
from crawlproject.state.client import REDIS_TROUBLE
from crawlproject.state.health import fault_of
from crawlproject.status.reporter import Reporter
from crawlproject.status.source_status import sample_sources
from crawlproject.texts import one_line, printable
from crawlproject.webserver import Resource, host_of, is_address

logger = logging.getLogger(__name__)
T = TypeVar("T")

_THUMBNAIL = re.compile(r"[0-9a-f]{2}/[A-Za-z0-9._%-]{1,204}\.(?:jpg|webp)")
_TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, the form would be sent with `Origin: null`
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
    that name this machine by a loopback address or as localhost are answered: otherwise any web page could have a
    name of its own resolve to this machine (DNS rebinding), and read everything. With a password, any address will
    do. CRAWL_DASHBOARD_ORIGIN adds the name under which a proxy shows it.

    `/?spider=NAME` shows the crawl of that spider, and may name several, side by side; `/` that of the first.
    """

    isLeaf = True  # noqa: N815 - Twisted's name

    def __init__(self, config: DashboardSettings, reporter: Reporter, thumbnail: Callable[[str], bytes]) -> None:
        super().__init__()
        self.state = reporter.state
        self.feed = Feed(reporter)
        self.sessions = Sessions(config.password)
        self._thumbnail = thumbnail
        self._origin = config.origin
        self._cookie = f"crawl_dashboard_{config.port}"
        self._here = _HERE | {config.address}
        if self._origin is not None:
            self._here |= {urlsplit(self._origin).hostname or ""}
        static = resources.files("crawlproject.contrib.dashboard") / "static"
        self._static = {file.name: file.read_bytes() for file in static.iterdir() if "." in file.name}
        self._pages: dict[str, Callable[..., Awaitable[tuple[bytes, str]]]] = loaded(
            "pages_of_source", logger.error
        )
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

    async def _in_time(self, work: Coroutine[Any, Any, T], seconds: float | None) -> T:
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
            **{("GET", f"/{name}"): self._page_of_source for name in self._pages},
            **{("POST", path): self._change for path in ("/halt", "/include", "/resume", "/rate")},
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
        name = host_of(_header(request, b"host"))
        if name not in self._here and not is_address(name, loopback=self.sessions.password is None):
            raise Refused(
                421, "unknown host name: use localhost or an address, or set CRAWL_DASHBOARD_ORIGIN to it"
            )

    def _check_origin(self, request: Any) -> None:
        """Refuse a form that another site's page sends."""
        origin = _header(request, b"origin").lower()
        host = _header(request, b"host").lower()
        if origin and origin not in {self._origin, f"http://{host}", f"https://{host}"}:
            raise Refused(403, "another site's page sent this: log in here, or set CRAWL_DASHBOARD_ORIGIN to it")

    def _session(self, request: Any) -> str:
        """Return the cookie of the session; a new one where none is needed."""
        cookie = (request.getCookie(self._cookie.encode()) or b"").decode("ascii", "replace")
        if self.sessions.is_valid(cookie):
            return cookie
        if self.sessions.password is not None:
            raise Refused(401, "log in")
        # A page that embeds ours a thousand times would end the session of whoever has it open.
        is_strange = _header(request, b"sec-fetch-site") in {"cross-site", "same-site"}
        if is_strange and _header(request, b"sec-fetch-dest") != "document":
            raise Refused(403, "another site's page asks for this: open the dashboard itself")
        return self._set_cookie(request, self.sessions.new(), LASTS_S)

    def _set_cookie(self, request: Any, cookie: str, seconds: int) -> str:
        request.addCookie(
            self._cookie,
            cookie,
            path="/",
            max_age=str(seconds),
            httpOnly=True,
            sameSite="strict",
            secure=(self._origin or "").startswith("https:"),
        )
        return cookie

    def _check_change(self, request: Any) -> str:
        """Refuse a change that does not come from our own page; return the cookie of its session."""
        token, cookie = _header(request, b"x-csrf-token"), self._session(request)
        if not self.sessions.is_token(cookie, token):
            raise Refused(403, "the page is older than this monitor: reload it")
        return cookie

    # Pages

    async def _page(self, request: Any) -> bytes | None:
        try:
            self._session(request)
        except Refused:
            if self.sessions.password is None:
                raise
            return self._go(request, "/login")
        self._spiders(request)
        return self._file(request, "index.html")

    def _spiders(self, request: Any) -> list[str]:
        """Return the spiders whose crawls a request is for."""
        known = list(self.feed.crawls())
        named = [name.decode(errors="replace") for name in request.args.get(b"spider", ())]
        for name in named:
            self._check_spider(name)
        return list(dict.fromkeys(named)) or known[:1]

    def _check_spider(self, name: str) -> None:
        known = list(self.feed.crawls())
        if name not in known:
            where = f"only on {', '.join(known)}"
            raise Refused(404, f"this monitor does not report on a spider {printable(name, 100)}, {where}")

    async def _login_page(self, request: Any) -> bytes:
        return self._file(request, "login.html") if self.sessions.password else self._go(request, "/")

    async def _log_in(self, request: Any) -> bytes:
        self._check_origin(request)
        form = request.args.get(b"password", [b""])
        try:
            if self.sessions.is_password(form[0].decode(errors="replace")):
                self._set_cookie(request, self.sessions.new(), LASTS_S)
                return self._go(request, "/")
        except TooManyAttempts:
            logger.warning("Dashboard: too many wrong passwords, the last from %s", request.getClientAddress())
            request.setHeader("Retry-After", "60")
            raise Refused(429, "too many wrong passwords: try again in a minute") from None
        return self._go(request, "/login?wrong")

    async def _log_out(self, request: Any) -> bytes:
        cookie = self._check_change(request)
        self._set_cookie(request, "", 0)
        self.sessions.end(cookie)
        self.feed.close(cookie)
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
        request.setHeader("Content-Type", content_type_of(name))
        request.setHeader("Cache-Control", "private, max-age=600")
        return body

    async def _page_of_source(self, request: Any) -> bytes:
        """Return a page of a plug-in about a source; it is about all spiders."""
        self._session(request)
        try:
            source = source_name(request.args.get(b"source", [b""])[0].decode(errors="replace"))
            body, policy = await self._pages[request.path[1:].decode()](self.state, source)
        except (ValueError, LookupError) as error:
            raise Refused(404, printable(str(error), 500)) from None
        request.setHeader("Content-Type", "text/html; charset=utf-8")
        request.setHeader("Content-Security-Policy", f"{policy}; frame-ancestors 'none'")
        return body

    async def _events(self, request: Any) -> bytes | None:
        cookie = self._session(request)
        spiders = self._spiders(request)
        request.setHeader("Content-Type", "text/event-stream; charset=utf-8")
        request.setHeader("X-Accel-Buffering", "no")  # else an nginx in front of us buffers events
        if request.method == b"HEAD":
            return b""
        hello = {
            "token": self.sessions.token(cookie),
            "password": self.sessions.password is not None,
            "pages": list(self._pages),
        }
        await self.feed.open(request, cookie, spiders, hello)
        if not self.sessions.is_valid(cookie):  # it was logged out meanwhile
            self.feed.close(cookie)
        return None

    # Changes by the operator

    async def _change(self, request: Any) -> bytes:
        """Do what an operator orders, of a source, in the crawl of a spider; return how it stands then."""
        self._check_change(request)
        try:
            said = json.loads(request.content.read())
            source, spider = source_name(said["source"]), str(said.get("spider", self.state.keys.spider))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise Refused(400, f"invalid request: {printable(str(error))}") from None
        self._check_spider(spider)
        state, rate = self.feed.crawls()[spider].survey.state, str(said.get("rate", "")).strip()
        address = request.getClientAddress()
        who = f"dashboard, {getattr(address, 'host', address)}"
        match request.path:
            case b"/halt":
                await halt(state, [source], who)
                what = "halted"
            case b"/resume":
                await resume(state, [source], who)
                what = "resumed"
            case b"/include":
                [what] = (await include(state, [source], who)).values()
                what = "still excluded by CRAWL_EXCLUDE" if what == "file" else what
            case _:
                try:
                    await set_rate(state, source, rate, who)
                except ValueError as error:
                    raise Refused(400, str(error)) from None
                what = "rate by size again" if rate == "auto" else f"rate set to {rate} requests a second"
        logger.info("Dashboard: %s: %s, by %s", source, what, who.partition(", ")[2], extra={"source": source})
        request.setHeader("Content-Type", "application/json")
        [row] = [one async for one in sample_sources(state, [source])]
        return one_line({"source": source, "row": {**row.public(), "trouble": row.trouble}}).encode()


def _header(request: Any, name: bytes) -> str:
    """Return a header of a request, whatever its bytes are; "" where there is none."""
    value: bytes = request.getHeader(name) or b""
    return value.decode("ascii", "replace")
