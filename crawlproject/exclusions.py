"""Sources and domains that are excluded: their names, what Redis has of them, and the file CRAWL_EXCLUDE."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from crawlproject.errors import ConfigError
from crawlproject.sources.domains import canonical_host
from crawlproject.sources.names import is_name, source_name
from crawlproject.state.client import REDIS_TROUBLE, State
from crawlproject.threads import in_thread

T = TypeVar("T")
_Stamp = tuple[int, int, int]  # of a file: changes when it is written or replaced

logger = logging.getLogger(__name__)

_PAGE = 1000  # names a call
_WRITTEN = 100  # names in one call: it holds up Redis for some 3 ms
_READ_ANYWAY_S = 60.0  # after which a file is read again that has not changed: somebody may have changed the set
_LABEL = r"[a-z0-9_\-\u0080-\U0010ffff]+"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})+\.?")
_COMMENT = re.compile(r"(?:^|\s)#")


def exclusion_names(value: str) -> list[str]:
    """Return the names by which exclusions have a source or a domain: as in URLs (`xn--...`), and as in seeds.

    Raises:
        ValueError: it is neither; a URL, for one. The message says what to name in its place.

    """
    bare = value.strip()
    if any(char in bare for char in "/*@"):
        raise ValueError(
            f"{value!r:.60} is neither a source nor a domain: give only the domain, such as museum.example; "
            "this includes its subdomains"
        )
    host = canonical_host(bare)
    if is_domain(host) and not is_name(bare.lower()):  # an IPv6 address in brackets, for one
        return [host]
    name = source_name(bare)
    return list(dict.fromkeys([host or name, name])) if is_domain(name) else [name]


def is_domain(name: str) -> bool:
    """Tell whether a name in lower case may be a domain or an address; otherwise it is that of a source alone."""
    return _DOMAIN.fullmatch(name) is not None or (":" in name and canonical_host(name) != "")


def domains_above(host: str) -> list[str]:
    """Return a host and its domains, but for the top-level one; as the Lua module `exclusions`."""
    found, domain = [host], host.partition(".")[2]
    while "." in domain:
        found.append(domain)
        domain = domain.partition(".")[2]
    return found


def parse_exclusions(text: str) -> dict[str, str]:
    """Return the names in the text of a `CRAWL_EXCLUDE` file, each with the comment in its line.

    Raises:
        ValueError: a line is invalid; the message says which.

    """
    names: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, *comment = _COMMENT.split(line, maxsplit=1)
        if name.strip():
            try:
                if name.strip().startswith("."):
                    raise ValueError(f"{name.strip()!r:.60} begins with a dot: leave it out")
                names |= dict.fromkeys(exclusion_names(name), "".join(comment).strip()[:300])
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return names


def read_exclusions(path: str) -> dict[str, str]:
    """Return the names in a `CRAWL_EXCLUDE` file, each with its comment. Blocks.

    Raises:
        ConfigError: it cannot be read, or a line is invalid; the message begins with the setting.

    """
    try:
        return parse_exclusions(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"CRAWL_EXCLUDE={path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"CRAWL_EXCLUDE={path} is not UTF-8") from None
    except ValueError as error:
        raise ConfigError(f"CRAWL_EXCLUDE={path}, {error}") from None


class ExcludedName(NamedTuple):
    """A source or domain that is excluded: by whom, when (None where it is not known) and why ("": not said).

    `in_file`: the leader's CRAWL_EXCLUDE names it, and `reason` may be the comment in its line.
    """

    name: str
    by: str
    time: str | None
    reason: str
    in_file: bool


async def excluded_names(state: State) -> list[ExcludedName]:
    """Return all that is excluded, sorted: by what the first shard that answers says, all say the same.

    Raises:
        REDIS_TROUBLE: none answers.

    """
    for shard in state.shards[:-1]:
        with suppress(*REDIS_TROUBLE):
            return await _excluded_names(shard)
    return await _excluded_names(state.shards[-1])


async def _excluded_names(state: State) -> list[ExcludedName]:
    names = sorted({name async for name in state.redis.sscan_iter(state.keys.excluded, count=_PAGE)})
    found: list[ExcludedName] = []
    for first in range(0, len(names), _PAGE):
        page = names[first : first + _PAGE]
        said = await state.redis.hmget(state.keys.excluded_by, page)
        found += [_excluded(*parts) for parts in zip(page, said, strict=True)]
    return found


async def noted_exclusion(state: State, name: str) -> ExcludedName:
    """Return what is noted of the exclusion of `name`."""
    return _excluded(name.encode(), await state.redis.hget(state.keys.excluded_by, name))


def _excluded(name: bytes, noted: bytes | None) -> ExcludedName:
    said = _said(noted)
    in_file = "file" in said
    by = said.get("by") or ("CRAWL_EXCLUDE" if in_file else "operator, by key")
    reason = said.get("reason") or said.get("file", "")
    return ExcludedName(name.decode(errors="replace"), by, said.get("time"), reason, in_file)


def _said(noted: bytes | None) -> dict[str, str]:
    """Return what exclude.lua has noted of a name."""
    said: dict[str, str] = {} if noted is None else json.loads(noted)
    return said


async def exclusion_of(state: State, source: str, host: str) -> str | None:
    """Return the name because of which nothing of `source` goes out to `host`; None if it may."""
    names = [source, *domains_above(host)]
    found = await state.redis.smismember(state.keys.excluded, names)
    return next((name for name, is_excluded in zip(names, found, strict=True) if is_excluded), None)


class ExclusionList:
    """The exclusions, as the leader keeps them. Every other process only heeds what is in Redis.

    What an operator has excluded is not the file's to include again, and the other way round. Without a file
    nothing is changed of what another leader's had; an empty file gives that up.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.begin()

    def begin(self) -> None:
        """Begin a term: nothing is known of what is in Redis."""
        self.is_published = self.path is None  # what the file names is excluded
        self._stamp: _Stamp | None = None
        self._read_at = 0.0
        self._fault = ""

    async def follow_file(self, state: State, fence: int) -> None:
        """Exclude what the file names, and include again what it names no more, if it has changed."""
        if (path := self.path) is None:
            return
        now = asyncio.get_running_loop().time()
        try:
            known = self._stamp if now < self._read_at + _READ_ANYWAY_S else None
            changed = await in_thread("exclusions", lambda: _changed(path, known))
        except ConfigError as error:
            fault = str(error)
            if fault != self._fault:
                logger.error("%s; what it named when it could last be read stays excluded", fault)
            self._fault, self.is_published = fault, True
            return
        self._fault = ""
        if changed is None:
            return
        stamp, names = changed
        if await self._publish(state, fence, names):
            self._stamp, self._read_at, self.is_published = stamp, now, True

    async def _publish(self, state: State, fence: int, names: dict[str, str]) -> bool:
        """Write the differences to Redis; False if another leads by now."""
        excluded_by, excluded = state.keys.excluded_by, state.keys.excluded
        for page in _pages(list(names.items())):
            async with state.redis.pipeline(transaction=False) as pipe:
                pipe.hmget(excluded_by, [name for name, _ in page])
                pipe.smismember(excluded, [name for name, _ in page])
                noted, members = await pipe.execute()
            new = {
                name: comment
                for (name, comment), said, member in zip(page, noted, members, strict=True)
                if member == 0 or _said(said).get("file") != comment
            }
            if new and not await state.scripts.exclude(new, fence=fence):
                return False
        of_file = [
            name.decode(errors="replace")
            async for name, noted in state.redis.hscan_iter(excluded_by, count=_PAGE)
            if "file" in _said(noted)
        ]
        for gone in _pages([name for name in of_file if name not in names]):
            if not await state.scripts.include(gone, fence=fence):
                return False
        return True


def _changed(path: str, known: _Stamp | None) -> tuple[_Stamp | None, dict[str, str]] | None:
    """Return the names in a `CRAWL_EXCLUDE` file, with its stamp; None if that is `known` already. Blocks.

    Raises:
        ConfigError: see `read_exclusions`.

    """
    stamp = None
    with suppress(OSError):  # `read_exclusions` says what is wrong
        found = Path(path).stat()
        stamp = found.st_mtime_ns, found.st_size, found.st_ino
    if stamp is not None and stamp == known:
        return None
    return stamp, read_exclusions(path)


def _pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), _WRITTEN):
        yield items[first : first + _WRITTEN]
