"""Processes that decode pictures, so that one which crashes, hangs or bloats its decoder takes nothing else along.

Each runs `child.py`, is sent one body at a time over a socket, and answers in JSON: nothing that comes out of
a process that strangers' bytes may have taken over is executed. Not concurrent.futures, where one crash breaks
the pool and there is no time limit. Not pebble, which has both: it pickles, has all processes share one pipe,
which breaks when one dies in the middle of a message, and multiprocessing loads Scrapy into each of them.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import NoReturn

from crawlproject.imaging.errors import DecodersStopped, MemoryNeeded, NoDecoder, TooLargeImage, UnreadableImage
from crawlproject.records import Analysis, ImageFacts

MIB = 1 << 20

# What pictures may take of the 1 GiB that a worker with two decoders may have, beyond what idle decoders have.
# Each has `SHARE` without asking, if by size and format half of that is expected to do: the rest is for what such
# an estimate leaves out, the body among it. Others wait for as much as they need, all of `MOST` at worst.
SHARE = 192 * MIB
MOST = 640 * MIB
_UNIT = 64 * MIB  # of what is given out

# The protocol. A request is what the picture may be expected to take and the hard limit, both in bytes, the
# lengths of its content codings and of its body, and both. A reply is its kind, the lengths of its text and of its
# thumbnail, and both.
REQUEST = struct.Struct("!QQQQ")
REPLY = struct.Struct("!cII")
READY = b"r"  # sent once, at the start
ANALYSIS = b"a"  # the text is the facts as JSON
UNREADABLE = b"u"  # the text is the reason
TOO_LARGE = b"l"  # likewise
NO_MEMORY = b"m"  # the text is JSON: what takes more memory than it may, and how many bytes, 0 for unknown
_LONGEST_TEXT, _LONGEST_THUMBNAIL = 1 * MIB, 16 * MIB  # far above ours

# glibc: so much may stay with an idle process. Asking the system anew for each picture's memory costs 7 % of CPU.
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(64 * MIB), "MALLOC_MMAP_THRESHOLD_": str(32 * MIB)}

_PICTURES = 2000  # then a process is replaced, whatever C libraries may have leaked in it
_START_TIMEOUT = 60.0  # seconds; it takes 0.2 on an idle machine
_STOP_TIMEOUT = 2.0
_TICK = 1.0


class DecoderCrashed(Exception):
    """The process ended in the middle of a picture; `str(error)` says how."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a decoder does with each picture: `max_pixels` and `quality` as in `analyse`, `timeout` in seconds.

    `max_size` is that of a body, in bytes, without its content codings.
    """

    max_pixels: int
    max_size: int
    quality: int
    timeout: float


class Decoders:
    """Up to `count` decoder processes, started when needed."""

    def __init__(self, count: int, job: Job) -> None:
        self._job = job
        self._idle: queue.LifoQueue[Decoder] = queue.LifoQueue()
        self._running: set[Decoder] = set()
        self._stopped = False
        self._changing = threading.Lock()  # of the two
        self._units = threading.Semaphore(max(MOST, count * SHARE) // _UNIT)
        self._turnstile = threading.Lock()  # shut while one waits for many units, or it might wait for ever

    def analyse(self, body: bytes, codings: Sequence[str] = ()) -> Analysis:
        """Return facts and thumbnail of a picture. Blocks; to be called from up to `count` threads.

        `codings` are the content codings of the body, the last one applied last.

        What crashes a decoder, or turns out to take more memory than it may, is tried once more with as much as
        any picture can have, after a crash in a fresh process. Raises UnreadableImage when that fails, too, or
        it takes too long, NoDecoder when no process can be started, and DecodersStopped.
        """
        expected, memory = SHARE // 2, SHARE
        while True:
            try:
                with self._memory(memory):
                    return self._analyse(codings, body, expected, memory)
            except (DecoderCrashed, NoDecoder) as error:
                if self._stopped:
                    raise DecodersStopped from error
                if isinstance(error, NoDecoder):
                    raise
                if memory == MOST:
                    raise UnreadableImage(f"crashes the decoder: {error}") from error
                self.close()
                expected = memory = MOST
            except MemoryNeeded as error:
                if memory == MOST:
                    limit = f"takes more memory than the {MOST // MIB} MiB that a picture may have"
                    raise UnreadableImage(f"{limit}: {error}" if str(error) else limit) from error
                expected = memory = min(error.needed * 5 // 4 + _UNIT, MOST) if error.needed else MOST

    def start(self) -> None:
        """Start another process. Blocks; raises NoDecoder, and DecodersStopped."""
        decoder = self._new()
        try:
            decoder.wait_until_ready()
        except NoDecoder as error:
            self._discard(decoder)
            if self._stopped:
                raise DecodersStopped from error
            raise
        self._idle.put(decoder)

    def stop(self) -> None:
        """Kill all processes, whatever they do, and start no more. For any thread; does not block."""
        with self._changing:
            self._stopped = True
            for decoder in self._running:
                decoder.kill()

    def close(self) -> None:
        """End the processes that are idle."""
        while True:
            try:
                decoder = self._idle.get_nowait()
            except queue.Empty:
                return
            self._discard(decoder)

    def _new(self) -> Decoder:
        with self._changing:
            if self._stopped:
                raise DecodersStopped
            decoder = Decoder(self._job)
            self._running.add(decoder)
            return decoder

    def _discard(self, decoder: Decoder) -> None:
        decoder.close()
        with self._changing:
            self._running.discard(decoder)

    def _analyse(self, codings: Sequence[str], body: bytes, expected: int, memory: int) -> Analysis:
        try:
            decoder = self._idle.get_nowait()
        except queue.Empty:
            decoder = self._new()
        try:
            return decoder.analyse(codings, body, expected, memory)
        finally:
            if decoder.running and decoder.pictures < _PICTURES:
                self._idle.put(decoder)
            else:
                self._discard(decoder)

    @contextmanager
    def _memory(self, size: int) -> Iterator[None]:
        units = -(-size // _UNIT)
        with self._turnstile:
            for _ in range(units):
                self._units.acquire()
        try:
            yield
        finally:
            self._units.release(units)


class Decoder:
    """One decoder process, for one thread at a time. Raises NoDecoder when it does not start."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.pictures = 0
        self._left = _START_TIMEOUT
        self._ready = False
        command = [sys.executable, "-P", "-m", "crawlproject.imaging.child", json.dumps(asdict(job))]
        self._name = f"a decoder process ({' '.join(command[:4])})"
        try:
            self._start(command)
        except OSError as error:
            raise NoDecoder(f"{self._name} cannot be started: {error}") from error

    def _start(self, command: list[str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **_MALLOC}
        # It inherits the signals that are blocked in this thread: Ctrl-C, or what an init system sends to a
        # whole group, is for the worker, which ends its decoders when it has no more pictures.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env=environment,
                )
        except BaseException:
            self._socket.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def wait_until_ready(self) -> None:
        """Wait until it has started."""
        if self._ready:
            return
        try:
            self._reply()
        except (DecoderCrashed, TimeoutError) as error:
            self._end(at_once=True)
            reason = str(error) or f"not ready after {_START_TIMEOUT:.0f} s"
            raise NoDecoder(f"{self._name} does not start: {reason}") from error
        self._ready = True

    def kill(self) -> None:
        """Kill the process. For any thread: the one that uses it finds out."""
        self._process.kill()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it can take another picture."""
        return self._socket.fileno() != -1

    def analyse(self, codings: Sequence[str], body: bytes, expected: int, memory: int) -> Analysis:
        """Return facts and thumbnail of a picture.

        Decoding may be expected to take `expected` bytes, and takes `memory` at most, by a hard limit. Raises
        UnreadableImage, MemoryNeeded, and DecoderCrashed. With the last, or when it took too long, the process
        is gone.
        """
        self.wait_until_ready()
        self.pictures += 1
        self._left = self.job.timeout
        try:
            names = ",".join(codings).encode()
            self._send(REQUEST.pack(expected, memory, len(names), len(body)) + names)
            self._send(body)
            kind, text, thumbnail = self._reply()
            if kind == ANALYSIS:
                return Analysis(ImageFacts(**json.loads(text)), thumbnail)
            if kind == NO_MEMORY:
                reason, needed = json.loads(text)
                raise MemoryNeeded(str(reason), int(needed))
            reason = text.decode()
        except TimeoutError:
            self._end(at_once=True)
            limit = f"takes longer to decode than CRAWL_DECODE_TIMEOUT ({self.job.timeout:g} s)"
            raise UnreadableImage(limit) from None
        except MemoryNeeded:
            raise
        except (ValueError, TypeError) as error:  # no JSON, no UTF-8, no facts
            self._crashed(f"answers nonsense ({error})")
        except BaseException:
            self._end(at_once=True)  # wherever in the conversation that was
            raise
        raise TooLargeImage(reason) if kind == TOO_LARGE else UnreadableImage(reason)

    def close(self) -> None:
        """End the process, which is idle."""
        self._end()

    def _end(self, *, at_once: bool = False) -> None:
        if not self.running:
            return
        self._socket.close()
        if at_once:
            self._process.kill()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _crashed(self, how: str = "") -> NoReturn:
        self._end(at_once=bool(how))
        code = self._process.returncode
        if not how:
            how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        raise DecoderCrashed(how)

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._wait_for(select.POLLOUT)
            try:
                view = view[self._socket.send(view) :]
            except ConnectionError:
                self._crashed()

    def _reply(self) -> tuple[bytes, bytes, bytes]:
        """Return kind, text and thumbnail of the next reply."""
        kind, text, thumbnail = REPLY.unpack(self._read(REPLY.size))
        if text > _LONGEST_TEXT or thumbnail > _LONGEST_THUMBNAIL:
            self._crashed(f"answers with {text + thumbnail} bytes")
        return kind, self._read(text), self._read(thumbnail)

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            self._wait_for(select.POLLIN)
            try:
                part = self._socket.recv(length - len(data))
            except ConnectionError:
                part = b""
            if not part:
                self._crashed()
            data += part
        return bytes(data)

    def _wait_for(self, event: int) -> None:
        """Wait until the socket is ready; raise TimeoutError when the time for this picture is over.

        A tick at a time: had the worker been stopped for minutes (SIGSTOP), the picture is charged one of them.
        """
        poll = select.poll()
        poll.register(self._socket, event)
        ready = False
        while not ready:
            if self._left <= 0:
                raise TimeoutError
            began = time.monotonic()
            ready = bool(poll.poll(min(self._left, _TICK) * 1000))
            self._left -= min(time.monotonic() - began, _TICK)
