"""Processes that decode pictures, so that a picture which crashes, hangs or bloats its decoder harms nothing else.

Each runs `analyse.main`, gets one body at a time over a socket, and answers in JSON: nothing from a process that
hostile bytes may have taken over is executed. Not concurrent.futures, where one crash breaks the pool and there
is no time limit. Not pebble, which solves both: it pickles, it has all processes share one pipe, which breaks
when a process dies in the middle of a message, and multiprocessing loads Scrapy into each of them.

All of this runs on the event loop. A thread for each picture would compete with the loop for the GIL at every
step: in a busy worker, pictures would wait longer for that than for their decoder.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from crawlproject.imaging import sandbox
from crawlproject.imaging.failures import (
    AnalysesNotLoaded,
    DecodersStopped,
    MemoryNeeded,
    NoDecoder,
    TookTooLong,
    UnreadableImage,
)
from crawlproject.imaging.fair_semaphore import FairSemaphore
from crawlproject.imaging.messages import (
    ANALYSED,
    ANALYSIS,
    BAD_ANALYSIS,
    INSPECTED,
    INSPECTIONS,
    MAX_MEMORY,
    NO_ANSWER,
    PLAIN,
    REPLY,
    REQUEST,
    Inspected,
    Job,
    Reply,
    refused,
    unpacked,
)
from crawlproject.models import Analysis, Event
from crawlproject.texts import counted, printable

logger = logging.getLogger(__name__)

MIB = 1 << 20

# The memory that pictures may take of a worker's 1 GiB (with two decoders), beyond that of idle decoders. Each
# picture has `SHARE` from the start, enough if by its size and format half of that is expected to suffice: the
# other half is for what the estimate leaves out, such as the body. It never waits for that. Those that need more
# have another `MAX_MEMORY`, one at a time.
SHARE = 160 * MIB

PROGRAM = "from crawlproject.imaging.analyse import main; main()"

# Bytes of a reply, and of its text for each analysis; more than a sound decoder sends.
_LONGEST_TEXT, _LONGEST_RESULT, _LONGEST_THUMBNAILS = 1 << 16, 1 << 13, 32 * MIB

# What a decoder has of the environment: how Python finds itself and its libraries, and nothing of the settings.
_ENVIRONMENT = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHOME")

# glibc: memory that an idle process may keep. Requesting it from the system for each picture costs 7 % of CPU.
# And huge pages, where Linux has them for who asks: small pictures take 3 % less CPU, large WebPs half.
_MALLOC = {
    "MALLOC_TRIM_THRESHOLD_": str(64 * MIB),
    "MALLOC_MMAP_THRESHOLD_": str(32 * MIB),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}

_PICTURES = (
    2000  # then a process is replaced: C libraries may have leaked memory, a picture may have taken it over
)
_START_TIMEOUT_S = 60.0  # a start takes 0.2 s on an idle machine
_STOP_TIMEOUT_S = 2.0
_NICENESS = 5  # sending requests on time comes before decoding and starting decoders
_TICK_S = 1.0
_MOST_THREADS = 16  # beside those that it has started with; a format's library may have one
_POLL_S = 0.005  # between checks whether a process has ended
_REST_S = 0.01  # until a process without a picture is stopped; a busy one has the next picture by then
_SEND_BUFFER = 1 << 19  # bytes: most bodies go to their decoder in one call, which takes a seventh less CPU

T = TypeVar("T")


class DecoderCrashed(Exception):
    """The process ended in the middle of a picture; `str(error)` says how."""


class _Lost(Exception):
    """No reply will come; `str(error)` says why, if the process is not at its end."""


def _nothing() -> None:
    """Check nothing."""


class Decoders:
    """The decoder processes, started when needed or before.

    `count` is the number of pictures decoded at the same time; it bounds their memory together. `places` says
    whose turn it is. `users` are the crawlers that share them.
    """

    def __init__(self, count: int, job: Job) -> None:
        self.places = FairSemaphore(count)
        self.users = 1
        self._count = count
        self._job = job
        self._idle: list[Decoder] = []
        self._running: set[Decoder] = set()
        self._stopped = False
        self._large = FairSemaphore(1)  # of the one picture that has `MAX_MEMORY`

    async def analyse(
        self,
        body: bytes,
        codings: Sequence[str] = (),
        source: str = "",
        check: Callable[[], None] = _nothing,
    ) -> Analysis:
        """Return facts and thumbnails of a picture.

        `codings` are the content codings of the body, in the order in which they were applied. `source` is whose
        picture it is, and `check` raises what stands against it when its turn has come.

        A picture that crashes its decoder, or needs more than its share of memory, is tried once more with all
        that any picture can have, after a crash in a fresh process. It has no turn while it waits for that.
        Analyses may be to blame, and cost no picture: after a crash or a time-out, and where all memory has not
        sufficed, it is tried once more without them.

        Raises UnreadableImage when that fails, too, or takes too long, NoDecoder when no process can be started,
        and DecodersStopped.
        """
        memory, fresh, analysed, left_out = SHARE, False, bool(self._job.analyses), ""
        while True:
            try:
                ask = partial(Decoder.analyse, codings=codings, body=body, memory=memory, analysed=analysed)
                with nullcontext() if memory == SHARE else await self._large.turn(source):
                    made = await self._asked(ask, source, check, fresh)
                errors = dict.fromkeys(self._job.analysis_names, left_out)
                return replace(made, errors=errors) if left_out else made
            except TookTooLong as error:
                if not analysed:
                    raise
                analysed, left_out = False, f"left out: {error}"
            except DecoderCrashed as error:
                if memory == MAX_MEMORY and not analysed:
                    raise UnreadableImage(f"crashes the decoder: {error}") from error
                if analysed:
                    analysed, left_out = False, f"left out: crashed the decoder ({error})"
                memory, fresh = MAX_MEMORY, True
            except MemoryNeeded as error:
                fresh = analysed  # analyses may hold what is missing
                if memory == SHARE:
                    memory = MAX_MEMORY
                elif analysed:
                    analysed, left_out = False, "left out: too little memory"
                else:
                    limit = f"needs more memory than the {MAX_MEMORY // MIB} MiB that a picture may have"
                    raise UnreadableImage(f"{limit}: {error}" if str(error) else limit) from error

    async def inspect(self, item: Inspected, check: Callable[[], None] = _nothing) -> Event:
        """Return the event of a body that is only inspected, as `analyse` does.

        One that crashes its decoder is tried once more, in a fresh process. Raises the same errors.
        """
        fresh = False
        while True:
            try:
                return await self._asked(partial(Decoder.inspect, item=item), item.source, check, fresh)
            except MemoryNeeded as error:
                raise UnreadableImage("needs too much memory to read its header") from error
            except DecoderCrashed as error:
                if fresh:
                    raise UnreadableImage(f"crashes the decoder: {error}") from error
                fresh = True

    def is_for(self, count: int, job: Job) -> bool:
        """Tell whether they are so many, and for that job."""
        return (count, job) == (self._count, self._job)

    def begin(self) -> None:
        """Start all processes without waiting for them, so that the first pictures need not wait either."""
        with suppress(NoDecoder):  # the first picture will report it
            while len(self._idle) < self._count:
                self._idle.append(self._new())

    async def start(self) -> None:
        """See whether there is a process, or one can be started. Raises NoDecoder, and DecodersStopped."""
        await self._asked(Decoder.wait_until_ready)

    def stop(self) -> None:
        """Kill all processes, even those at work, and start no more."""
        self._stopped = True
        for decoder in self._running:
            decoder.kill()

    async def close(self) -> None:
        """End all processes, none of which has work left, when the last crawler that uses them is done."""
        self.users -= 1
        if self.users > 0:
            return
        self.stop()
        self._idle.clear()
        await asyncio.gather(*(decoder.close() for decoder in self._running))
        self._running.clear()

    def _new(self) -> Decoder:
        if self._stopped:
            raise DecodersStopped
        decoder = Decoder(self._job)
        self._running.add(decoder)
        return decoder

    async def _discard(self, decoder: Decoder) -> None:
        self._running.discard(decoder)
        await decoder.close()

    async def _asked(
        self,
        ask: Callable[[Decoder], Awaitable[T]],
        source: str = "",
        check: Callable[[], None] = _nothing,
        fresh: bool = False,
    ) -> T:
        """Ask a decoder, a `fresh` one or whichever is idle, when it is the turn of a picture of `source`.

        The next picture may have the decoder as soon as it has answered, before this one goes on.
        """
        with await self.places.turn(source) as turn:
            check()
            try:
                if fresh and self._idle:
                    await self._discard(self._idle.pop())
                while self._idle and not self._idle[-1].running:  # it has ended, through no fault of this picture
                    await self._discard(self._idle.pop())
                decoder = self._idle.pop() if self._idle and not fresh else self._new()

                def answered() -> None:
                    if decoder.running and decoder.pictures < _PICTURES:
                        self._idle.append(decoder)
                        turn.end()

                decoder.answered = answered
                try:
                    return await ask(decoder)
                finally:
                    if not turn.has_ended:
                        answered()
                    if not turn.has_ended:
                        await self._discard(decoder)
            except (DecoderCrashed, NoDecoder) as error:
                if self._stopped:
                    raise DecodersStopped from error
                if isinstance(error, NoDecoder):
                    while self._idle:  # some of them may have failed to start, unnoticed so far
                        await self._discard(self._idle.pop())
                raise


_of_process: list[Decoders] = []


def decoders_of_process(count: int, job: Job) -> Decoders:
    """Return the decoders that the crawlers of this process share."""
    _of_process[:] = [one for one in _of_process if one.users > 0 and one.is_for(count, job)]
    if _of_process:
        _of_process[0].users += 1
    else:
        _of_process.append(Decoders(count, job))
    return _of_process[0]


class Decoder:
    """One decoder process, for one picture at a time. Raises NoDecoder when it does not start."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.pictures = 0
        self.unprotected: tuple[str, ...] = ()  # what this system lacks for the sandbox; known when it is ready
        self._ready = False
        self._killed_for = ""
        self._resting = False  # stopped
        self._threads = 0  # when it was ready
        self._replies: _Replies | None = None  # once it is listened to
        self.answered = _nothing  # called at once with each sound answer
        command = [sys.executable, "-P", "-c", PROGRAM, json.dumps(asdict(job))]
        self._name = f"a decoder process ({shlex.join(command[:4])})"
        try:
            self._start(command)
        except OSError as error:
            raise NoDecoder(f"{self._name} cannot be started: {error}") from error

    def _start(self, command: list[str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)  # or what this system allows
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **_MALLOC}
        sandbox.hide()  # this process, from the one that follows
        # The child inherits the signals blocked in this thread: Ctrl-C, or a signal to the whole process group, is
        # for the worker, which ends its decoders when it has no more pictures.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env=environment,
                )
                os.setpriority(os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
        except BaseException:
            self._socket.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    async def wait_until_ready(self) -> None:
        """Wait until the process has started. Raises NoDecoder."""
        if self._ready:
            return
        if self._replies is None:
            most = _LONGEST_TEXT + _LONGEST_RESULT * len(self.job.analyses)
            longest = most, _LONGEST_THUMBNAILS + (self.job.max_size if self.job.return_bodies else 0)
            loop = asyncio.get_running_loop()
            try:
                _, self._replies = await loop.create_unix_connection(lambda: _Replies(*longest), sock=self._socket)
            finally:
                if self._replies is None:  # cancelled; asyncio would close the socket later
                    self._socket.close()
        try:
            kind, text, _ = await self._replies.ask((), lambda *reply: reply, _START_TIMEOUT_S, _nothing)
        except (_Lost, TimeoutError) as error:
            crash = await self._crash(str(error)) if isinstance(error, _Lost) else None
            await self.close()
            reason = str(crash or f"not ready after {_START_TIMEOUT_S:.0f} s")
            raise NoDecoder(f"{self._name} does not start: {reason}") from error
        if kind == BAD_ANALYSIS:
            await self.close()
            raise AnalysesNotLoaded(text.decode(errors="replace"))
        self._ready = True
        self._threads = _threads_of(self.pid)
        missing, broken = json.loads(text)
        self.unprotected = tuple(missing)
        if self.unprotected:
            _say_unprotected(self.unprotected)
        for name, why in broken.items():
            _say_broken(name, why)
        self.job = self.job.without(broken)

    def kill(self, why: str = "") -> None:
        """Kill the process; a pending `analyse` fails, and says why."""
        self._killed_for = why
        self._process.kill()

    def _look(self) -> None:
        """End the process if it has started many threads: a picture has taken it over."""
        if (started := _threads_of(self.pid) - self._threads) > _MOST_THREADS:
            self.kill(f"started {counted(started, 'thread')}")

    def _wake(self) -> None:
        if self._resting:
            self._process.send_signal(signal.SIGCONT)
            self._resting = False

    def _rest(self, pictures: int) -> None:
        """Stop the process if it has had no picture since: it does nothing, whoever has taken it over.

        Elsewhere than on Linux it would be left behind when this process is killed.
        """
        if self.pictures == pictures and sys.platform == "linux":
            self._process.send_signal(signal.SIGSTOP)
            self._resting = True

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it can take another picture."""
        return self._socket.fileno() != -1 if self._replies is None else not self._replies.transport.is_closing()

    async def analyse(self, codings: Sequence[str], body: bytes, memory: int, analysed: bool = True) -> Analysis:
        """Return facts and thumbnails of a picture.

        `memory` is the hard limit; decoding is refused if it is expected to take more, or half of a share. Raises
        UnreadableImage, MemoryNeeded, and DecoderCrashed. After the last, or a time-out, the process is gone.
        """
        return await self._answer(ANALYSED if analysed else PLAIN, codings, body, memory, ANALYSIS, unpacked)

    async def inspect(self, item: Inspected) -> Event:
        """Return the event of a body that is only inspected; raises as `analyse` does."""
        wanted = INSPECTIONS + list(self.job.inspections).index(item.inspection)
        return await self._answer(wanted, item.codings, item.body, SHARE, INSPECTED, item.event)

    async def _answer(
        self,
        wanted: int,
        codings: Sequence[str],
        body: bytes,
        memory: int,
        good: bytes,
        read: Callable[[Reply], T],
    ) -> T:
        """Send a request; return what its reply says, if that is `good`."""
        await self.wait_until_ready()
        self.pictures += 1
        names = ",".join(codings).encode()
        request = REQUEST.pack(memory, wanted, len(names), len(body)) + names

        def told(kind: bytes, text: bytes, data: bytes) -> T:
            reply = Reply(kind, text, data, self.job, None if codings else len(body))
            made = read(reply) if kind == good else refused(reply)
            asyncio.get_running_loop().call_later(_REST_S, self._rest, self.pictures)
            self.answered()
            if isinstance(made, MemoryNeeded | UnreadableImage):
                raise made
            return made

        self._wake()
        assert self._replies is not None
        try:
            return await self._replies.ask((request, body), told, self.job.timeout, self._look)
        except TimeoutError:
            await self.close()
            limit = f"took longer to decode than CRAWL_DECODE_TIMEOUT ({self.job.timeout:g} s)"
            raise TookTooLong(limit) from None
        except (MemoryNeeded, UnreadableImage):
            raise
        except _Lost as error:
            raise await self._crash(str(error)) from None
        except NO_ANSWER as error:
            raise await self._crash(f"sent an invalid answer ({error})") from error
        finally:
            if not self.running:
                self.kill()

    async def close(self) -> None:
        """End the process; it has no state to lose."""
        self._hang_up()
        self.kill()
        while self._process.poll() is None:  # noqa: ASYNC110 - the event loop does not watch the process
            await asyncio.sleep(_POLL_S)

    def _hang_up(self) -> None:
        if self._replies is None:
            self._socket.close()
        else:
            self._replies.transport.abort()

    async def _crash(self, how: str = "") -> DecoderCrashed:
        """Return the error of a process that has crashed, or that is killed here because of `how`."""
        self._hang_up()
        loop = asyncio.get_running_loop()
        patience = loop.time() + (0 if how else _STOP_TIMEOUT_S)
        while (code := self._process.poll()) is None:
            if loop.time() >= patience:
                self.kill()
            await asyncio.sleep(_POLL_S)
        how = how or self._killed_for
        if not how:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return DecoderCrashed(printable(how))


class _Replies(asyncio.Protocol):
    """The replies of a decoder, each read as soon as it is whole; of so many bytes at most."""

    transport: asyncio.Transport

    def __init__(self, longest_text: int, longest_data: int) -> None:
        self._longest_text, self._longest_data = longest_text, longest_data
        self._bytes = bytearray()
        self._read: Callable[[bytes, bytes, bytes], Any]
        self._made: asyncio.Future[Any] | None = None  # of the reply that is awaited, by `_read`

    async def ask(
        self,
        request: Sequence[bytes],
        read: Callable[[bytes, bytes, bytes], T],
        seconds: float,
        look: Callable[[], None],
    ) -> T:
        """Send a request; return what `read` makes of the reply's kind, text and data; `look` once a second.

        Time is counted in ticks: if the worker was stopped for minutes (SIGSTOP), that counts as one tick only.
        Raises what `read` raises, TimeoutError, and _Lost.
        """
        if self.transport.is_closing():
            raise _Lost
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        # It is given itself: if it named itself, only the garbage collector would free it, and what was made.
        def tick(left: float, tick: Callable[..., None]) -> None:
            nonlocal timer
            if made.done():  # in this turn of the loop: the next picture may have the decoder
                return
            if left <= 0:
                self._end(TimeoutError())
                return
            if left < seconds:
                look()
            timer = loop.call_later(min(left, _TICK_S), tick, left - _TICK_S, tick)

        self._read, self._made = read, loop.create_future()
        made: asyncio.Future[T] = self._made
        self.transport.writelines(request)
        tick(seconds, tick)
        self.data_received(b"")  # it may have come already
        try:
            return await made
        finally:
            timer.cancel()
            if made.cancelled():
                self._end(_Lost())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have what is sent go out at once, rather than at the end of the loop's turn."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(0)

    def data_received(self, data: bytes) -> None:
        """Read the reply if it is whole."""
        self._bytes += data
        unread = self.transport.get_write_buffer_size()  # of the request
        if data and self._made is not None and (unread or self._made.done()):
            self._end(_Lost("sent more than was requested"))
        elif len(self._bytes) >= REPLY.size:
            self._look_at_reply()

    def _look_at_reply(self) -> None:
        kind, text, size = REPLY.unpack_from(self._bytes)
        middle, end = REPLY.size + text, REPLY.size + text + size
        if text > self._longest_text or size > self._longest_data:
            self._end(_Lost(f"sent {text + size} bytes"))
        elif len(self._bytes) > end:
            self._end(_Lost("sent more than was requested"))
        elif len(self._bytes) == end and self._made is not None:
            made, reply = self._made, (kind, bytes(self._bytes[REPLY.size : middle]), bytes(self._bytes[middle:]))
            self._bytes.clear()
            try:
                made.set_result(self._read(*reply))
            except Exception as error:  # whatever is wrong with it
                made.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        """Have no reply awaited any more."""
        self._end(_Lost())

    def _end(self, error: Exception) -> None:
        if self._made is not None and not self._made.done():
            self._made.set_exception(error)
        self.transport.abort()


def _threads_of(pid: int) -> int:
    """Return how many threads a process has; 0 where /proc hides them."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[17])  # proc(5), from field 3
    return 0


@functools.cache
def _say_unprotected(missing: tuple[str, ...]) -> None:
    """Log, once, what a decoder's sandbox lacks."""
    logger.warning(
        "A picture that takes over its decoder is not fully confined: %s; see SECURITY.md", "; ".join(missing)
    )


@functools.cache
def _say_broken(name: str, why: str) -> None:
    """Log, once, what of a plug-in decoders go without."""
    logger.error("A plug-in's %s cannot be loaded, and decoders go without it: %s", name, why)
