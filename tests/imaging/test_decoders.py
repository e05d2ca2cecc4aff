"""Decoder processes: what they are for, and what becomes of them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from crawlproject.imaging import decoders
from crawlproject.imaging.decoders import MIB, SHARE, Decoders
from crawlproject.imaging.failures import DecodersStopped, NoDecoder, UnreadableImage
from crawlproject.imaging.messages import (
    ANALYSIS,
    MAX_MEMORY,
    NO_MEMORY,
    REPLY,
    TOO_LARGE,
    UNREADABLE,
    Job,
    packed,
)
from crawlproject.models import Analysis
from tests.imaging.analysing import PLUGINS, picture
from tests.imaging.test_messages import FACTS, TWO
from tests.imaging.test_messages import JOB as MESSAGES_JOB
from tests.traps.sitecustomize import CRASH, CRASH_LATER, EXPLOIT, HOG, LINGER, SLEEP, SPIN
from tests.waiting import PATIENCE_S, until, until_async

pytestmark = pytest.mark.slow

JOB = Job(max_pixels=100_000_000, max_size=50_000_000, quality=85, timeout=10)


GOOD = picture()


def trap(kind: bytes) -> bytes:
    return picture(comment=kind)


def large_webp(width: int, height: int) -> bytes:
    """Return a lossless WebP that claims to be so large."""
    body = bytearray(picture("WEBP", lossless=True))
    place = body.index(b"VP8L") + 9
    (bits,) = struct.unpack_from("<L", body, place)
    struct.pack_into("<L", body, place, (bits & 0xF0000000) | (height - 1) << 14 | (width - 1))
    return bytes(body)


Make = Callable[..., Decoders]


@pytest_asyncio.fixture
async def make(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "traps"))
    made: list[Decoders] = []

    def several(count: int = 1, of: Job = JOB, **job: Any) -> Decoders:
        made.append(Decoders(count, replace(of, **job)))
        return made[-1]

    yield several
    for one in made:
        await one.close()


def children(parent: int | str = "self") -> list[int]:
    """Return the decoder processes of a process, by default of this one."""
    found: list[int] = []
    for path in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [pid for pid in map(int, path.read_text().split()) if is_decoder(pid)]
    return found


def is_decoder(pid: int) -> bool:
    try:
        return b"crawlproject.imaging.analyse" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def reason(one: Decoders, body: bytes, codings: Sequence[str] = ()) -> str:
    with pytest.raises(UnreadableImage) as caught:
        await one.analyse(body, codings)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 300
    return str(caught.value)


async def test_a_jpeg_2000_of_many_tiles_gets_the_memory_that_they_take(make: Make) -> None:
    body = picture("JPEG2000", (2400, 2400), tile_size=(16, 16))
    made = await make(formats=("JPEG2000",)).analyse(body)
    assert (made.facts.width, made.facts.height) == (2400, 2400)
    assert await reason(make(formats=("JPEG2000",)), body[:5000]) == (
        "JPEG2000: broken data stream when reading image file"
    )


async def test_a_process_is_replaced_after_many_pictures(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "_PICTURES", 3)
    one = make()
    seen = []
    for _ in range(7):
        await one.analyse(GOOD)
        seen += children()
    # The third of each ends it.
    assert [seen.count(pid) for pid in dict.fromkeys(seen)] == [2, 2, 1]


async def test_a_picture_that_crashes_its_decoder_is_unreadable_and_harms_no_other(make: Make) -> None:
    one = make(2)

    async def crash() -> set[str]:
        return {await reason(one, trap(CRASH)) for _ in range(3)}

    async def read() -> set[str]:
        return {(await one.analyse(GOOD)).facts.sha256 for _ in range(20)}

    crashed, good = await asyncio.gather(crash(), read())
    assert crashed == {"crashes the decoder: killed by SIGSEGV"}
    assert len(good) == 1


async def test_a_format_that_cannot_be_loaded_is_named_and_off_alone(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "crawl_raises.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "crawl_disc.py").write_text(
        "import re\nfrom crawlproject.models import FileType, Format\n"
        "DISC = Format(file=FileType('.disc', 'image/disc'), begins=re.compile(b'disc'), load=lambda: 1 / 0)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    broken = {"TAPE": "crawl_raises:FORMAT", "DISC": "crawl_disc:DISC"}
    one = make(formats=("JPEG", *broken), plugins=broken, inspections={"odd": "crawl_raises:odd"})
    assert (await one.analyse(GOOD)).facts.width == 90
    assert await reason(one, b"disc") == "not a picture in a supported format (JPEG), begins with 'disc'"
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        f"A plug-in's {name} cannot be loaded, and decoders go without it: {path}: {fault}"
        for name, path, fault in (
            ("TAPE", "crawl_raises:FORMAT", "RuntimeError: no licence"),
            ("DISC", "crawl_disc:DISC", "ZeroDivisionError: division by zero"),
            ("odd", "crawl_raises:odd", "RuntimeError: no licence"),
        )
    ]


async def test_a_crash_that_does_not_recur_in_a_fresh_process_is_forgiven(make: Make) -> None:
    one = make()
    await one.analyse(GOOD)
    (first,) = children()
    assert (await one.analyse(trap(CRASH_LATER))).facts.format == "JPEG"
    assert first not in children()


@pytest.mark.parametrize("kind", [SPIN, SLEEP])
async def test_the_time_for_a_picture_is_limited(make: Make, kind: bytes) -> None:
    one = make(timeout=0.5)
    await until_async(lambda: one.analyse(GOOD), despite=UnreadableImage)
    began = time.monotonic()
    assert await reason(one, trap(kind)) == "took longer to decode than CRAWL_DECODE_TIMEOUT (0.5 s)"
    assert time.monotonic() - began > 0.4
    assert children() == []
    assert (await until_async(lambda: one.analyse(GOOD), despite=UnreadableImage)).facts.width == 90


async def test_memory_has_a_hard_limit(make: Make) -> None:
    one = make(timeout=60)  # that much memory takes a while to fill on a busy machine
    assert (
        await reason(one, trap(HOG))
        == f"needs more memory than the {MAX_MEMORY // MIB} MiB that a picture may have"
    )
    (pid,) = children()
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in line)
    assert MAX_MEMORY < int(peak.split()[1]) * 1024 < MAX_MEMORY + 64 * MIB
    assert (await one.analyse(GOOD)).facts.width == 90


def address_spaces() -> list[int]:
    """Return the bytes of address space that the decoder processes have."""
    return [int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * 4096 for pid in children()]


async def test_a_picture_that_waits_for_memory_takes_no_turn_from_others(make: Make) -> None:
    one = make(2, timeout=PATIENCE_S)
    await one.analyse(GOOD)
    before = max(address_spaces())
    hostile = [asyncio.create_task(one.analyse(trap(LINGER), (), "bad")) for _ in range(5)]
    await until_async(lambda: max(address_spaces(), default=0) > before + SHARE)
    for _ in range(20):
        assert (await one.analyse(GOOD, (), "good")).facts.width == 90
    assert not any(each.done() for each in hostile)
    one.stop()
    for each in hostile:
        with pytest.raises(DecodersStopped):
            await each


async def test_large_pictures_of_one_source_leave_room_for_those_of_others(make: Make) -> None:
    one = make(2, timeout=5)
    await until_async(lambda: one.analyse(GOOD), despite=UnreadableImage)
    before = max(address_spaces())
    bad = [asyncio.create_task(one.analyse(trap(LINGER), (), source="bad")) for _ in range(4)]
    await until_async(lambda: max(address_spaces(), default=0) > before + SHARE)
    with pytest.raises(UnreadableImage):
        await one.analyse(trap(LINGER), (), source="good")
    assert sum(each.done() for each in bad) <= 2  # of four
    one.stop()
    await asyncio.gather(*bad, return_exceptions=True)


# A decoder that is in a picture's hands from the start: the picture is its reply, byte for byte.
TAKEN_OVER = f"""#!{sys.executable} -IS
import socket, struct, time
channel = socket.socket(fileno=0)
stream = channel.makefile("rb")
channel.sendall(struct.pack("!cII", b"r", 8, 0) + b"[[], {{}}]")
while head := stream.read(25):
    *_, names, length = struct.unpack("!QBQQ", head)
    body = stream.read(names + length)[names:]
    channel.sendall(body)
    while body.endswith(b"spin"):
        pass
    if body.endswith(b"again"):
        time.sleep(0.1)
        channel.sendall(body)
"""


# Its answer comes as soon as it has the first bytes of a request.
UNREAD = TAKEN_OVER.replace(
    "stream.read(names + length)[names:]", """struct.pack("!cII", b"u", 13, 0) + b'["why", null]'"""
)


@pytest.fixture
def taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Have all processes that start be taken over, until that is undone."""
    script = tmp_path / "python"
    script.write_text(TAKEN_OVER)
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return monkeypatch


def frame(kind: bytes, text: bytes, data: bytes = b"") -> bytes:
    return REPLY.pack(kind, len(text), len(data)) + text + data


SOUND = Analysis(FACTS, TWO, b"", {"score": 1})


FRAMES = {
    "of no kind": frame(b"?", b"{}"),
    "no text": frame(ANALYSIS, b""),
    "not UTF-8": frame(ANALYSIS, b"\xff"),
    "no object": frame(ANALYSIS, b"null"),
    "a lie": frame(ANALYSIS, b'{"facts": null}'),
    "too deep": frame(ANALYSIS, b"[" * 50_000),
    "a text that is too long": frame(ANALYSIS, b"[" + b"1," * 500_000 + b"1]"),
    "lengths that are too large": REPLY.pack(ANALYSIS, 0xFFFFFFFF, 0xFFFFFFFF),
    "more than one reply": frame(UNREADABLE, b'["why",null]') * 2,
}


async def test_whatever_a_taken_over_decoder_answers_costs_its_picture_alone(
    make: Make, taken_over: pytest.MonkeyPatch
) -> None:
    one = make(of=MESSAGES_JOB, return_bodies=False)
    text, data = packed(SOUND)
    assert await one.analyse(frame(ANALYSIS, text.encode(), data), ("x",)) == SOUND
    for name, answer in FRAMES.items():
        before = children()
        words = await reason(one, answer, ("x",))
        assert words.startswith("crashes the decoder: sent "), name
        assert not {*before} & {*children()}, name
    for told, words in {
        b'["\\u001b[2J' + b"x" * 9000 + b'", null]': "?[2J" + "x" * 296,
        b'["why", null]': "why",
    }.items():
        assert await reason(one, frame(UNREADABLE, told), ("x",)) == words
    assert await reason(one, frame(TOO_LARGE, b"\n" * 9000), ("x",)) == "?" * 300
    assert len(await reason(one, frame(NO_MEMORY, b"y" * 9000), ("x",))) == 300
    taken_over.undo()
    assert (await make().analyse(GOOD)).facts.width == 90


async def test_an_answer_that_nobody_has_asked_for_is_never_that_of_the_next_picture(
    make: Make, taken_over: pytest.MonkeyPatch
) -> None:
    taken_over.setattr(decoders, "_REST_S", PATIENCE_S)
    one = make()
    assert await reason(one, frame(UNREADABLE, b'["why", null]', b"again")) == "why"
    before = children()
    (idle,) = one._idle
    await until_async(lambda: idle._replies is not None and bool(idle._replies._bytes))
    assert await reason(one, frame(UNREADABLE, b'["the next", null]')) == "the next"
    assert not {*before} & {*children()}


async def test_the_next_picture_has_the_decoder_before_the_last_one_goes_on(make: Make) -> None:
    one = make()
    await one.analyse(GOOD)
    before = children()
    order = []
    first = asyncio.create_task(one.analyse(GOOD))
    first.add_done_callback(lambda _: order.append("first done"))
    await asyncio.sleep(0)
    await one.analyse(GOOD, check=lambda: order.append("next begun"))
    assert order == ["next begun", "first done"]
    # Then the last one's end is no reason to end the process.
    first = asyncio.create_task(one.analyse(GOOD))
    await asyncio.sleep(0)

    def give_up() -> None:
        first.cancel()

    assert (await one.analyse(GOOD, check=give_up)).facts.width == 90
    assert first.cancelled()
    assert children() == before


async def test_an_answer_at_the_last_moment_leaves_the_decoder_to_the_next_picture(make: Make) -> None:
    one = make(timeout=1.0)
    await one.analyse(GOOD)
    before = children()
    first = asyncio.create_task(one.analyse(GOOD))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    time.sleep(1.5)
    assert (await first).facts.width == 90
    assert (await one.analyse(GOOD)).facts.width == 90
    assert children() == before


async def test_a_process_that_ends_without_a_picture_is_no_fault_of_the_next_one(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoders, "DecoderCrashed", SystemError)
    one = make()
    await one.analyse(GOOD)
    (idle,) = one._idle
    os.kill(idle.pid, signal.SIGKILL)
    await until_async(lambda: not idle.running)
    assert (await one.analyse(GOOD)).facts.width == 90


@pytest.mark.parametrize("turns", range(5))
async def test_a_picture_that_is_given_up_while_its_decoder_starts_harms_no_other(make: Make, turns: int) -> None:
    one = make()
    one.begin()
    first = asyncio.create_task(one.analyse(GOOD))
    for _ in range(turns):
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await one.analyse(GOOD)).facts.width == 90


async def test_a_decoder_that_answers_without_reading_its_picture_is_ended(
    make: Make, taken_over: pytest.MonkeyPatch
) -> None:
    Path(sys.executable).write_text(UNREAD)
    one = make()
    for _ in range(2):  # otherwise all pictures would wait in memory until they are read
        assert await reason(one, bytes(8 << 20)) == "crashes the decoder: sent more than was requested"


def exploit(code: str) -> bytes:
    return trap(EXPLOIT + code.encode() + b"\0")


THREADS = "[threading.Thread(target={}, args={}, daemon=True).start() for _ in range({})]"


async def test_a_picture_that_starts_many_threads_is_unreadable(make: Make) -> None:
    one = make(timeout=PATIENCE_S, formats=("JPEG", "DRAWN"), plugins=PLUGINS)  # which allows threads
    began = time.monotonic()
    many = "threading.stack_size(65_536) or " + THREADS.format("time.sleep", "(600,)", 40)
    words = await reason(one, exploit(f"{many} and time.sleep(600)"))
    assert words == "crashes the decoder: started 40 threads"
    assert time.monotonic() - began < PATIENCE_S / 2
    assert (await one.analyse(GOOD)).facts.width == 90


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def test_a_decoder_does_nothing_between_pictures(make: Make, taken_over: pytest.MonkeyPatch) -> None:
    one = make(timeout=PATIENCE_S)
    assert await reason(one, frame(UNREADABLE, b'["why", null]', b"spin")) == "why"
    (pid,) = children()
    used = cpu_of(pid)
    await asyncio.sleep(1)
    assert cpu_of(pid) < used + 0.1
    assert is_decoder(pid)


async def test_signals_are_for_the_worker(make: Make) -> None:
    one = make()
    await one.analyse(GOOD)
    (pid,) = children()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    await one.analyse(GOOD)
    assert children() == [pid]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()).isdisjoint({signal.SIGINT, signal.SIGTERM})


async def test_a_decoder_that_does_not_start_is_an_internal_fault(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    one = make()
    with pytest.raises(NoDecoder, match="does not start: exit code 1"):
        await one.analyse(GOOD)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(NoDecoder, match=r"cannot be started: .*No such file"):
        await one.start()
    monkeypatch.undo()
    await one.start()
    assert (await one.analyse(GOOD)).facts.width == 90
    assert len(children()) == 1


async def test_decoders_that_are_stopped_end_at_once_and_start_no_more(make: Make) -> None:
    one = make(2)
    looks = [asyncio.create_task(one.analyse(trap(SLEEP))) for _ in range(2)]
    await until_async(lambda: len(children()) == 2)
    one.stop()
    async with asyncio.timeout(PATIENCE_S):
        for look in looks:
            with pytest.raises(DecodersStopped):
                await look
    assert children() == []
    with pytest.raises(DecodersStopped):
        await one.analyse(GOOD)


async def test_a_cancelled_analysis_leaves_nothing_behind(make: Make) -> None:
    one = make()
    await one.analyse(GOOD)
    look = asyncio.create_task(one.analyse(trap(SLEEP)))
    await asyncio.sleep(0.2)
    look.cancel()
    with pytest.raises(asyncio.CancelledError):
        await look
    assert children() == []
    assert (await one.analyse(GOOD)).facts.width == 90


async def test_what_was_made_of_pictures_is_freed_at_once(make: Make) -> None:
    one = make()

    async def held() -> int:
        await one.analyse(GOOD)
        return sum(isinstance(each, Analysis) for each in gc.get_objects())

    gc.disable()
    try:
        assert await held() == await held() == await held()
    finally:
        gc.enable()


PARENT = """
import asyncio, sys
from crawlproject.imaging.decoders import Decoder
from crawlproject.imaging.messages import Job

async def main():
    one = Decoder(Job(10**6, 10**6, 85, 60))
    await one.wait_until_ready()
    print(one.pid, flush=True)
    if sys.argv[1] == "busy":
        looking = asyncio.create_task(one.analyse((), sys.stdin.buffer.read(), 10**9))
    await asyncio.sleep(60)

asyncio.run(main())
"""


DEAF = (
    EXPLOIT + b"[signal.signal(each, signal.SIG_IGN) for each in range(1, 32) if each not in (9, 19)] and spin()\0"
)


@pytest.mark.parametrize(("state", "kind"), [("idle", SPIN), ("busy", DEAF), ("busy", SLEEP)])
def test_decoders_end_with_a_worker_that_is_killed(state: str, kind: bytes) -> None:
    traps = str(Path(__file__).parents[1] / "traps")
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([traps, str(Path(__file__).parents[2])])}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, state], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.stdin.write(trap(kind))
        parent.stdin.close()
        time.sleep(1)
        assert is_decoder(pid)
        parent.kill()
    until(lambda: not is_decoder(pid))
