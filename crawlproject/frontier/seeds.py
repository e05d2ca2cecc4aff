"""Seeds: how they are read, from a line of the seed list to a request in the frontier."""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from scrapy import Request, Spider
from scrapy.statscollectors import StatsCollector
from scrapy_redis.spiders import RedisMixin

from crawlproject.errors import BadSeed, ConfigError
from crawlproject.frontier import codec
from crawlproject.frontier.contents import room as read_room
from crawlproject.frontier.modes import modes
from crawlproject.models import AGAIN, EXTRA, PRIORITIES, SOURCE, Seed
from crawlproject.pages.scope import Scope
from crawlproject.pages.traps import DEEPEST
from crawlproject.sources.domains import domain_of_url, host_of_url, url_fault, with_canonical_host
from crawlproject.sources.names import LONGEST_NAME, is_name, source_name
from crawlproject.state.calls import NewRequest, Rejected
from crawlproject.state.client import State
from crawlproject.texts import LONGEST_URL, printable, scrapy_command, without_userinfo

logger = logging.getLogger(__name__)

LONGEST_IDENTIFIER = 1_024  # characters

TOO_LONG = b"\0"  # begins, before its length, what stands in place of a line that was not read

YIELD_EVERY = 25  # seeds parsed without yielding to the event loop: a millisecond
_BATCH = 200  # each perhaps of another source: more would hold Redis up
_RETRY_S = 0.2  # until seeds that could not be enqueued are tried again
_WAIT_S = 1
FULL_S = 0.5  # until a full frontier is checked again; meanwhile room for a batch may come together


def parse_seed(line: bytes | str) -> Seed:
    """Parse one line of the seed list: a plain URL, or a JSON object with `url` and optional fields.

    A missing `uuid` (or `identifier`) is the UUIDv5 of the URL; a missing `source` is found by host later;
    `priority` is clamped to 0 to 4, `depth` to 20.

    Raises:
        BadSeed: it is neither, or a value is invalid; the message says which and why.

    """
    try:
        text = (line.decode() if isinstance(line, bytes) else line).strip()
    except UnicodeDecodeError:
        raise BadSeed("not UTF-8") from None
    if text[:1] not in {"{", "[", '"'}:
        return seed_of({"url": text})
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSeed(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadSeed("JSON, but not an object with a url")
    return seed_of(data)


def seed_of(data: Mapping[str, Any]) -> Seed:
    """Return the seed with the fields in `data`.

    Raises:
        BadSeed: see `parse_seed`.

    """
    given = _url(data.get("url"))
    url = with_canonical_host(given)
    if fault := url_fault(url):
        raise BadSeed(fault)
    return Seed(
        url=url,
        identifier=_identifier(data.get("identifier") if data.get("uuid") in (None, "") else data["uuid"], given),
        source=_source(data.get("source"), url),
        priority=_priority(data.get("priority")),
        again=_again(data.get("again")),
        depth=_depth(data.get("depth")),
        scope=_scope(data.get("scope"), url),
        extra=_extra(data.get("extra")),
        mode=_mode(data),
    )


def _url(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadSeed("no URL" if value is None else f"no URL: {_shown(value)}")
    url = value.strip()
    if len(url) > LONGEST_URL:
        raise BadSeed(f"URL of {len(url)} characters, more than {LONGEST_URL}")
    return url


def _shown(value: Any) -> str:
    """Return an invalid value for an error message: short, printable, and without passwords."""
    return f"{without_userinfo(repr(value)):.80}"


def _identifier(value: Any, url: str) -> str:
    if value is None or value == "":
        return str(uuid.uuid5(uuid.NAMESPACE_URL, url))
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not text or len(text) > LONGEST_IDENTIFIER:
        raise BadSeed(f"uuid must be a string of 1-{LONGEST_IDENTIFIER:,} characters: {_shown(value)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadSeed("uuid with an unpaired surrogate") from None
    return text


def _source(value: Any, url: str) -> str | None:
    if not is_name(domain_of_url(url)):  # whose it may become, whatever it names: not so of http://-a/
        raise BadSeed(
            f"invalid host {host_of_url(url)!r:.60}: a domain must have 1 to {LONGEST_NAME} letters, digits and "
            "the characters . _ : -, and not begin with '-'"
        )
    try:
        return None if value is None or value == "" else source_name(value)
    except ValueError as error:
        raise BadSeed(str(error)) from None


def _priority(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadSeed(f"priority must be a whole number: {_shown(value)}")
    return min(max(value, 0), PRIORITIES - 1)


def _again(value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise BadSeed(f"again must be true or false: {_shown(value)}")
    return bool(value)


def _depth(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise BadSeed(f"depth must be a whole number from 0: {_shown(value)}")
    return None if value is None else min(value, DEEPEST)


def _scope(value: Any, url: str) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise BadSeed(f"scope must be text: {_shown(value)}")
    try:
        return Scope.of_seed(url, value).text
    except ValueError as error:
        raise BadSeed(str(error)) from None


def _extra(value: Any) -> Mapping[str, Any] | None:
    if value is not None and (fault := codec.extra_fault(value)):
        raise BadSeed(fault)
    return value or None


def _mode(data: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    for name, mode in modes().items():
        value = data.get(name)
        if value is not None and value is not False:
            try:
                return name, mode.stored(value)
            except ValueError as error:
                raise BadSeed(str(error)) from None
            except Exception as error:  # whatever a plug-in meets in what a stranger may have written
                raise BadSeed(printable(without_userinfo(f"{name}: {type(error).__name__}: {error}"))) from error
    return None


class SeedReader:
    """Moves seeds into the frontier, as they come and as long as there is room.

    A seed is in Redis at every moment: moved from the list to this worker's processing list, and removed from
    there in the same step that enqueues it. `arrived` is called when requests were enqueued.

    No more are taken than there is room for, so that none go to and fro. Most seeds need no place in an overflow:
    how much of that is left counts only after seeds have come back (`full`), until a whole batch has room there.
    """

    def __init__(
        self,
        state: State,
        spider: Spider,
        request_of: Callable[[bytes], Request],
        stats: StatsCollector,
        arrived: Callable[[], None],
    ) -> None:
        self.state = state
        self.spider = spider
        self.request_of = request_of
        self.stats = stats
        self.arrived = arrived
        self.full = False
        self.unfinished = False  # the processing list may hold seeds, from a call that failed or was deferred

    async def read(self) -> float:
        """Wait a second at most for seeds and enqueue a batch; return the seconds to pause before the next."""
        state = self.state
        if not self.full and not self.unfinished and not await await_seed(state.redis, state.keys.seeds):
            # A call that was given up while Redis hung may have been carried out since.
            self.unfinished = bool(await state.redis.exists(state.keys.processing_of + state.worker_id))
            return 0.0
        room = await read_room(state)
        if room.overflow >= _BATCH:
            self.full = False
        count = min(_BATCH, room.frontier, room.overflow if self.full else _BATCH)
        if not count and not self.unfinished:
            self.full = True
            return FULL_S
        self.unfinished = True
        lines = await state.scripts.take_seeds(state.worker_id, count)
        if lines:
            pause = await self._enqueue(lines)
            return pause if count == _BATCH else max(pause, FULL_S)
        self.full = self.unfinished = False
        return _RETRY_S

    async def _enqueue(self, lines: list[bytes]) -> float:
        items = []
        for number, line in enumerate(lines, 1):
            items.append(self._item(line))
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # so that no send slot is missed
        reply = await self.state.scripts.enqueue(self.state.worker_id, items, seeds=lines)
        if reply is None:
            return _RETRY_S
        self.unfinished = False
        for name in ("admitted", "duplicates", "dead", "returned", "excluded", "forwarded"):
            if count := getattr(reply, name):
                self.stats.inc_value(f"frontier/seeds_{name}", count)
        if reply.admitted:
            self.arrived()
        if reply.dead:
            see = scrapy_command("dead", "list", spider=self.state.keys.spider)
            logger.warning("%d seeds became dead letters: see %s", reply.dead, see)
        self.full = self.full or reply.returned > 0
        return FULL_S if reply.returned and not reply.admitted else 0.0

    def _item(self, line: bytes) -> NewRequest | Rejected:
        try:
            if line[:1] == TOO_LONG and line[1:].isdigit():
                raise BadSeed(f"a line of {int(line[1:]) / 1e6:,.1f} MB was not read: 1 MiB is the most")
            return new_request(self.request_of(line), self.spider)
        except (BadSeed, TypeError, ValueError) as error:
            return Rejected(str(error))


async def await_seed(redis: Any, seeds: str) -> bool:
    """Wait a second at most for a seed in a list, and tell whether there is one. Nothing is moved.

    The one blocking command that a worker sends: it hears of a seed at once. The command takes the last seed and
    puts it back to its place: carried out late, when the worker has been given up, it does no harm. Where seeds
    wait already, none is sent here.
    """
    return bool(await redis.llen(seeds)) or await redis.blmove(seeds, seeds, _WAIT_S, "RIGHT", "RIGHT") is not None


def has_starts(spider: Spider) -> bool:
    """Tell whether a spider begins by itself, with `start_urls` or a `start` of its own."""
    if hasattr(spider, "request_for"):
        return False
    return bool(getattr(spider, "start_urls", ())) or type(spider).start is not Spider.start


def check_spider(spider: Spider) -> None:
    """Check that a spider can be crawled with.

    Raises:
        ConfigError: it has a delay, a seed list of its own, or declares an attribute that requests do not have.

    """
    if delay := getattr(spider, "download_delay", 0):
        raise ConfigError(
            f"spider {spider.name} has download_delay {delay!r}, which would delay requests beyond the moment "
            "when they may be sent: leave it out, and set the rate of a source with scrapy rate"
        )
    declared: object = getattr(spider, "stored_attributes", frozenset())
    if not isinstance(declared, (set, frozenset)) or not declared <= codec.DECLARABLE:
        raise ConfigError(
            f"spider {spider.name} has stored_attributes = {declared!r}: it must be a frozenset of names out of "
            f'{", ".join(sorted(codec.DECLARABLE))}, such as frozenset({{"cb_kwargs"}})'
        )
    named = getattr(spider, "redis_key", None)
    if named is not None and named % {"name": spider.name} != f"{spider.name}:start_urls":
        raise ConfigError(
            f"spider {spider.name} has redis_key {named!r}: its seeds are read from {spider.name}:start_urls; "
            "push them there, leave redis_key out, and take what waits along with RENAME of redis-cli"
        )


def requests_of(spider: Spider) -> Callable[[bytes], Request]:
    """Return what makes the request of a line of the spider's seed list.

    That is its `request_for`, which is given the parsed `Seed`, or `make_request_from_data`, given the line as
    scrapy-redis does. Without either it is a request for the seed's URL that `parse` is called with; scrapy-redis'
    own method does not count, as it makes form data of the keys of a seed.
    """
    if (of_seed := getattr(spider, "request_for", None)) is not None:
        return lambda line: of_seed(parse_seed(line))
    of_line = getattr(spider, "make_request_from_data", None)
    if of_line is not None and getattr(of_line, "__func__", None) is not RedisMixin.make_request_from_data:
        return partial(_made_by, of_line)
    return lambda line: _request_of(parse_seed(line))


def _made_by(of_line: Callable[[bytes], Any], line: bytes) -> Request:
    try:
        made = of_line(line)
    except Exception as error:
        raise BadSeed(f"make_request_from_data failed: {type(error).__name__}: {error!s:.200}") from error
    if isinstance(made, Request):
        return made
    raise BadSeed(f"make_request_from_data must return one Request, returned {_shown(made)}")


def _request_of(seed: Seed) -> Request:
    meta: dict[str, Any] = {} if seed.source is None else {SOURCE: seed.source}
    if seed.extra is not None:
        meta[EXTRA] = seed.extra
    return Request(seed.url, meta=meta, priority=seed.priority or 0, dont_filter=seed.again)


def new_request(request: Request, spider: Spider) -> NewRequest:
    """Return `request` as the function `enqueue` takes it, with the source that it names, and its domain.

    Raises:
        TypeError, ValueError: it cannot be stored (see codec.encode).

    """
    if (url := with_canonical_host(request.url)) != request.url:
        request = request.replace(url=url)
    return NewRequest(
        codec.encode(request, spider),
        codec.digest(request),
        again=request.dont_filter or bool(request.meta.get(AGAIN)),
        source=request.meta.get(SOURCE) or None,
        domain=domain_of_url(request.url) or None,
    )
