"""Feeds of files: how far each has come, kept in Redis with the seeds, and what holds it back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from crawlproject.errors import BadInput, BadSeed
from crawlproject.frontier import seed_list
from crawlproject.frontier.seeds import parse_seed
from crawlproject.ingest.files import columns_of
from crawlproject.ingest.files import read as read_lines
from crawlproject.ingest.seed_files import STDIN, SeedFile, absolute, find, is_stream
from crawlproject.ingest.seed_rows import Columns
from crawlproject.sources.domains import domain_of_url
from crawlproject.state import functions
from crawlproject.state.client import State
from crawlproject.texts import printable, scrapy_command

_BATCH = 1000  # seeds a call
_KEPT_S = 30 * 86_400  # after the last seeds
_LOOK_S = 0.5  # between two checks of what holds a batch back
_PATIENCE_S = 5.0  # until that is reported
_REMEDY = "feed them without --resume: seeds that were crawled before are dropped as duplicates"
_REMEDY_FIXED = "begin without --resume, which feeds all rows again"


@dataclass(frozen=True, slots=True)
class Position:
    """Behind the line or row `row` of the file with this `index` (0: before its first); all before it are fed.

    `of`: the feed is of so many files, whatever comes behind them; 0: also of those that come while it lasts.
    """

    index: int = 0
    row: int = 0
    of: int = 0

    def text(self, files: Sequence[SeedFile]) -> str:
        """Return it as it is kept, with a digest of the files that must stay as they are."""
        return json.dumps([self.index, self.row, self._digest(files), self.of])

    def _digest(self, files: Sequence[SeedFile]) -> str:
        """Return what tells whether the files are the same: all, or those up to the one that is fed in part."""
        fed = files[: self.of or self.index + bool(self.row)]
        text = "".join(f"{file.name}\n{file.size}\n{file.modified}\n" for file in fed)
        return _sha1(text)

    @classmethod
    def of_text(cls, text: str, files: Sequence[SeedFile]) -> Self:
        """Return the position that was kept of the same files, of which there may be more now.

        Raises:
            BadInput: they are not the same any more up to there.

        """
        try:
            index, row, digest, of = json.loads(text)
            position = cls(int(index), int(row), int(of))
        except (ValueError, TypeError, RecursionError):
            raise BadInput(f"the position of the last feed cannot be read: {text!r:.80}; {_REMEDY}") from None
        if max(position.index, position.of) > len(files) or digest != position._digest(files):
            at = files[position.index].name if position.index < len(files) else "the last file"
            which = f"all {position.of}" if position.of else f"up to {at}"
            raise BadInput(
                f"the files, {which}, are not as they were when their feed stopped behind row {position.row} of "
                f"{at if position.of else 'it'}: some have changed, come or gone; "
                f"{_REMEDY_FIXED if position.of else _REMEDY}"
            )
        return position


def feed_name(names: Sequence[str], columns: Columns) -> str:
    """Return what a feed of these arguments is known by: other seeds of the same files are another feed."""
    options = [sorted(columns.named.items()), sorted(columns.kept.items()), columns.reading.name]
    files = [name if name == STDIN else absolute(name) for name in names]
    return _sha1("\n".join((json.dumps(options), *files)))


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()


class Feed:
    """A feed of files that this process has begun, or goes on with.

    `feed` is what it is known by, `position` where the last process stopped with `resume`, "" from the beginning:
    a text of the caller's, which differs from call to call of `push`. `say` is told once what holds the seeds
    back, if that takes long.

    A position in a file would not do: killed between the two, a process has either put seeds into the list that it
    does not know of, or noted some that are not there. With both in one call there is nothing between, a call
    that is repeated because its reply was lost does nothing, and what Redis loses in a crash it loses together.
    """

    def __init__(self, state: State, feed: str, say: Callable[[str], object] = lambda _: None) -> None:
        self._state = state
        self._feed = feed
        self._say = say
        self._said = ""
        self._run = secrets.token_hex(8)
        self._keys = seed_list.users_seeds(state) or state.keys
        self.position = ""

    async def begin(self, *, resume: bool) -> None:
        """Begin it, or go on with it."""
        key = f"{self._keys.feed_of}{self._feed}"
        async with self._state.client_for(self._state.keys.users_seeds) as users, users.pipeline() as pipe:
            pipe.hset(key, "run", self._run)
            if not resume:
                pipe.hset(key, "position", "")
            pipe.hget(key, "position")
            pipe.expire(key, _KEPT_S)
            *_, position, _ = await pipe.execute()
        self.position = (position or b"").decode(errors="replace")

    async def push(self, seeds: Sequence[str], position: str) -> None:
        """Put seeds behind those that wait, all or none, when there is room; `position` is behind the last.

        Raises:
            BadInput: another process has begun the same feed since.

        """
        began = time.monotonic()
        while seeds and (reason := await why_held(self._state, seeds)):
            if reason != self._said and time.monotonic() > began + _PATIENCE_S:
                self._say(f"scrapy feed: waiting: {reason}")
                self._said = reason
            await asyncio.sleep(_LOOK_S)
        users_list = self._state.keys.users_seeds
        feed = {"feed": self._feed, "run": self._run, "keep": _KEPT_S, "position": position}
        command = functions.command("feed", self._keys, feed | {"list": users_list, "seeds": list(seeds)})
        async with self._state.client_for(users_list) as users:
            if not await functions.call(users, command):
                raise BadInput(
                    "another scrapy feed of the same files has begun, and goes on with them: let one run"
                )


class FileFeed:
    """A feed of the files that `names` name; it blocks, and `run` runs a coroutine meanwhile.

    `say` reports each rejected line, and `waits` (by default `say`) the reason why the feed waits. `fed` and
    `rejected` count lines.
    """

    def __init__(
        self,
        state: State,
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        names: Sequence[str],
        columns: Columns,
        say: Callable[[str], object],
        scheme: str = "http",
        waits: Callable[[str], object] | None = None,
    ) -> None:
        self.fed = self.rejected = 0
        self._run, self._names, self._columns = run, names, columns
        self._say, self._scheme = say, scheme
        self._feed = Feed(state, feed_name(names, columns), waits or say)

    def begin(self, settings: Mapping[str, Any], *, resume: bool) -> str:
        """Find the files, and where to begin; return that in words.

        Raises:
            BadInput, OSError: they cannot be fed, or have changed since what is to be resumed.

        """
        found = find(self._names, settings)
        self._run(self._feed.begin(resume=resume))
        self._begin = Position(of=len(found) if self._columns.reading.are_fixed else 0)
        if self._feed.position:
            self._begin = Position.of_text(self._feed.position, found)
        self._files = found[: self._begin.of or None]
        self._columns.reading.begin(self._files)
        return self._where()

    def _where(self) -> str:
        begin = self._begin
        if not begin.index and not begin.row:
            return "there is no feed of these files with these options to resume: feeding from the first file"
        if begin.index >= len(self._files):
            return "these files have been fed already" + (
                ": begin the next feed without --resume" if begin.of else ""
            )
        return f"continuing after row {begin.row} of {self._files[begin.index].name}"

    @property
    def size(self) -> int:
        """The bytes of the files that are left."""
        return sum(file.size for file in self._files[self._begin.index :])

    def ignored(self) -> str:
        """Say which columns of the first file are ignored; "" if none are."""
        left = self._files[self._begin.index :]
        if not left or is_stream(left[0].name) or self._columns.reading.columns:
            return ""
        kinds = columns_of(left[0])
        named = list(kinds)
        if not self._columns.has_urls(named):
            return ""  # a plain list
        taken = self._columns.of_object(dict.fromkeys(named)) if "json" in kinds.values() else {}
        names = [name for name in self._columns.ignored(left[0].name, named) if name not in taken]
        return f"ignored: {printable(', '.join(names), 500)}" if names else ""

    def push(self, read: Callable[[int], object], stopped: Callable[[], bool] = lambda: False) -> None:
        """Feed what is left, until `stopped`; `read` is told of bytes.

        Raises:
            BadInput, OSError: a file cannot be read; what comes before is fed.

        """
        batch: list[str] = []
        for index, number, seed in self._seeds(read):
            if stopped():
                return
            batch.append(seed)
            if len(batch) >= _BATCH:
                self._put(batch, index, number)
        self._put(batch, len(self._files))

    def _seeds(self, read: Callable[[int], object]) -> Iterator[tuple[int, int, str]]:
        """Yield each seed, with the index of its file and the number of its line."""
        first = self._begin
        for index, file in enumerate(self._files[first.index :], first.index):
            after = first.row if index == first.index else 0
            for line in read_lines(file, read, self._scheme, self._columns, after):
                if not self._columns.reading.has(index, line.number):
                    continue
                if line.seed is None:
                    self.rejected += 1
                    self._say(f"{file.name}:{line.number}: {line.reason}")
                else:
                    yield index, line.number, line.seed

    def _put(self, batch: list[str], index: int, row: int = 0) -> None:
        self._run(self._feed.push(batch, Position(index, row, self._begin.of).text(self._files)))
        self.fed += len(batch)
        batch.clear()


async def why_held(state: State, batch: Sequence[str]) -> str:
    """Return what holds a batch from a file back, as a clause; "" when it may be put into the seed list now.

    A batch with seeds of several sources is held back only by what all sources share: held for one source, it
    would hold back the others. A batch for a single source leaves half of the overflow to others.
    """
    spider = state.keys.spider
    if await seed_list.is_long(state):
        see = scrapy_command("stats", spider=spider)
        return f"the seed list is full: start a worker, or see {see} (seeds_waiting, outstanding)"
    if not await seed_list.is_overflow_half_full(state):
        return ""
    whose = set()
    for line in batch:
        with suppress(BadSeed):
            seed = parse_seed(line)
            whose.add((seed.source, domain_of_url(seed.url)))
    sources = await seed_list.sources_with_enough(state, whose)
    if not sources:
        return ""
    have, see = "has" if len(sources) == 1 else "have", scrapy_command("sources", spider=spider, of=sources)
    return f"{' and '.join(sources)} {have} enough seeds waiting: see {see}"
