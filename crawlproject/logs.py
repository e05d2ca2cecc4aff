"""The format of a process's log: for people, or a JSON object a line (`CRAWL_LOG_FORMAT`).

Every line about a request names its source and its identifier; no line contains a password or a body.
"""

from __future__ import annotations

import fcntl
import json
import logging
import logging.handlers
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.logformatter import LogFormatter, LogFormatterResult
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from twisted.python.failure import Failure

from crawlproject import config
from crawlproject.models import IDENTIFIER, SOURCE
from crawlproject.program import as_called
from crawlproject.screen import Screen
from crawlproject.texts import one_line, printable, visible, without_secrets


def subject(record: logging.LogRecord) -> dict[str, str]:
    """Return what a line is about: `source` and `identifier` of its request, or the `source` alone.

    A request is in the line's arguments (where Scrapy puts it) or in its `extra`; a source is in `extra`.
    """
    request = getattr(record, "request", None)
    if request is None and isinstance(record.args, Mapping):
        request = record.args.get("request")
    found = {"source": getattr(record, "source", None), "identifier": None}
    if isinstance(request, Request):
        found = {name: request.meta.get(name) for name in (SOURCE, IDENTIFIER)}
    return {name: str(value) for name, value in found.items() if value is not None}


class TextFormatter(logging.Formatter):
    """Lines for people, in Scrapy's format (`LOG_FORMAT`), with their subject at the end."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and below it the traceback, if there is one; nothing in it that a terminal obeys."""
        return visible(without_secrets(as_called(super().format(record))))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line without a traceback."""
        line = super().formatMessage(record)
        about = subject(record)
        if "identifier" in about:  # otherwise the message itself names the source
            line += " [" + " ".join(f"{name}={printable(value)}" for name, value in about.items()) + "]"
        return line


class JsonFormatter(logging.Formatter):
    """A JSON object a line: `time`, `level`, `logger`, `message`; `source`, `identifier`, `exception` if known."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        data: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": without_secrets(as_called(record.getMessage())),
            **subject(record),
        }
        if record.exc_info:
            data["exception"] = without_secrets(self.formatException(record.exc_info))
        return one_line(data)


class RequestLog(LogFormatter):
    """Scrapy's lines about requests, without items: an item contains a picture, and its outcome is an event."""

    def crawled(self, request: Request, response: Response, spider: Spider) -> LogFormatterResult:
        """Say which response came, where lines at DEBUG are logged."""
        if logging.root.manager.disable >= logging.DEBUG:
            return None  # type: ignore[return-value] # as below
        return super().crawled(request, response, spider)

    def scraped(self, item: Any, response: Response | Failure | None, spider: Spider) -> LogFormatterResult:
        """Say nothing."""
        return None  # type: ignore[return-value] # Scrapy's documented way to leave a line out

    def dropped(
        self, item: Any, exception: BaseException, response: Response | Failure | None, spider: Spider
    ) -> LogFormatterResult:
        """Say why an item was dropped."""
        line = super().dropped(item, exception, response, spider)
        return _line(line["level"], "Dropped: %(reason)s", response, reason=printable(str(exception)))

    def item_error(
        self, item: Any, exception: BaseException, response: Response | Failure | None, spider: Spider
    ) -> LogFormatterResult:
        """Say what kind of item failed; the traceback follows."""
        return _line(logging.ERROR, "Error processing %(kind)s", response, kind=type(item).__name__)


def _line(level: int, message: str, response: Response | Failure | None, **args: Any) -> LogFormatterResult:
    # After an errback Scrapy passes the failure as the response; it has the request, too.
    return {"level": level, "msg": message, "args": {"request": getattr(response, "request", None), **args}}


_ROTATED_BYTES, _ROTATED_FILES = 100_000_000, 5


class SharedFileHandler(logging.handlers.RotatingFileHandler):
    """Writes a file that several processes may write, as the workers in a folder do: one of them renames it."""

    def doRollover(self) -> None:  # noqa: N802
        """Rename the file, or open the new one if another process has renamed it."""
        assert self.stream is not None
        with os.fdopen(os.dup(self.stream.fileno()), "ab") as old:
            fcntl.flock(old, fcntl.LOCK_EX)
            try:
                is_current = os.path.samestat(os.fstat(old.fileno()), Path(self.baseFilename).stat())
            except OSError:
                is_current = False
            if is_current:
                super().doRollover()
            else:
                self.stream.close()
                self.stream = self._open()


def _is_news(record: logging.LogRecord) -> bool:
    """Tell whether to log a line: where another handler than ours gives a body up, the dead letter says more.

    So does whoever gave a connection to Redis up: while its TLS handshake ended, the last of which uvloop then
    fails to write, or while its name was looked up, which fails later.
    """
    if record.name == "asyncio" and record.exc_info:
        text, error = record.getMessage(), record.exc_info[1]
        if text.startswith("Fatal error on SSL protocol"):
            return "the handler is closed" not in str(error)
        if text.startswith("Future exception was never retrieved"):
            return not isinstance(error, socket.gaierror)
    return record.levelno >= logging.ERROR or not record.name.startswith("scrapy.core.downloader.handlers.")


class ScreenHandler(logging.Handler):
    """Shows on a terminal what its operator should read: warnings and errors, a line each, without tracebacks."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record."""
        try:
            text = without_secrets(record.getMessage())
            if text.startswith('{"event":'):  # of the audit trail
                event = json.loads(text)
                text = event["msg"] + (f" ({event['reason']})" if "reason" in event else "")
            if record.exc_info and record.exc_info[0]:
                text += f" ({record.exc_info[0].__name__}: the log has its traceback)"
            self._screen.say(f"{record.levelname}: {text}")
        except Exception:  # as all handlers do
            self.handleError(record)


def _is_as_delivered(settings: BaseSettings) -> bool:
    """Tell whether nobody has said how to log."""
    given = (name for name in settings if isinstance(name, str) and name.startswith("LOG_"))
    is_said = any((settings.getpriority(name) or 0) > SETTINGS_PRIORITIES["project"] for name in given)
    return not is_said and not settings.get("LOG_FILE") and settings.getbool("LOG_ENABLED")


def _screen_with(settings: BaseSettings, spider: str) -> Screen | None:
    """Return the terminal of a worker of `spider`, whose log goes to a file from here on; None if it has none."""
    screen = Screen()
    if not screen.is_live or not _is_as_delivered(settings) or config.load(settings).log_format != "text":
        return None
    file = config.project_dir() / ".crawl" / "logs" / f"{spider}.log"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("ab").close()
    except OSError:  # as where the folder is read-only: the log stays on the terminal
        return None
    settings.set("LOG_FILE", str(file), priority="cmdline")
    logging.root.addHandler(ScreenHandler(screen))
    return screen


def install(settings: BaseSettings, spider: str = "") -> Screen | None:
    """Set up this process's log as `settings` say, from its first line on, in place of Scrapy's own handler.

    Called by a command's `process_options`, before Scrapy sets up its logging. Scrapy's `LOG_*` settings and
    options keep their meaning.

    For a worker of `spider` on a terminal, unless a setting says how to log, the log goes to `.crawl/logs/`; the
    terminal is returned, and shows only what its operator should read.

    Raises:
        ConfigError: a setting is invalid.
        OSError: the log file cannot be opened.

    """
    own = config.load(settings)
    screen = _screen_with(settings, spider) if spider else None
    handler: logging.Handler = logging.NullHandler()
    if file := settings.get("LOG_FILE"):
        if not settings.getbool("LOG_FILE_APPEND"):
            Path(file).write_bytes(b"")  # where files are rotated, the handler itself always appends
        handler = SharedFileHandler(
            file, maxBytes=_ROTATED_BYTES, backupCount=_ROTATED_FILES, encoding=settings.get("LOG_ENCODING")
        )
    elif settings.getbool("LOG_ENABLED"):
        handler = logging.StreamHandler()
    text = TextFormatter(settings.get("LOG_FORMAT"), settings.get("LOG_DATEFORMAT"))
    handler.setFormatter(JsonFormatter() if own.log_format == "json" else text)
    handler.setLevel(settings.get("LOG_LEVEL"))
    handler.addFilter(_is_news)
    logging.disable(handler.level - 1)  # else several records a request would be made and dropped by the handler
    settings.set("LOG_INSTALL_ROOT_HANDLER", False, priority="cmdline")
    logging.root.setLevel(logging.NOTSET)
    logging.root.addHandler(handler)
    return screen
