"""What a picture can do that has taken over its decoder: the real process, after its real start, runs its code."""

from __future__ import annotations

import ast
import ctypes
import os
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.fuzz_pictures import readable, samples
from crawlproject.imaging import decoders
from crawlproject.imaging.decoders import Decoder
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.messages import MAX_MEMORY
from tests.imaging.analysing import analyse, picture
from tests.imaging.test_decoders import JOB
from tests.traps.sitecustomize import EXPLOIT

pytestmark = pytest.mark.slow

TRAPS = str(Path(__file__).parents[1] / "traps")
SECRET = ctypes.create_string_buffer(b"the worker's password")

# What the code in a picture tries; names in capitals are those of `prey`.
ATTEMPTS = {
    "read a file": "open(OUTSIDE).read()",
    "read a file through C": "call('open', OUTSIDE.encode(), 0)",
    "write a file": "open(FOLDER + '/new', 'w').write('x')",
    "connect to a server": "socket.socket().connect(('127.0.0.1', PORT))",
    "send a datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
    "connect to the embedded Redis": "socket.socket(socket.AF_UNIX).connect(SOCKET)",
    "speak to the kernel": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
    "fork": "os.fork() or os._exit(0)",
    "become another program": "os.execv(EXECUTABLE, [EXECUTABLE, '-c', ''])",
    "read the worker's environment": "open(f'/proc/{PARENT}/environ').read()",
    "read the worker's memory": "call('process_vm_readv', PARENT, struct.pack('QQ', ctypes.addressof("
    "BUFFER := ctypes.create_string_buffer(64)), 64), 1, SECRET, 1, 0) and BUFFER.value",
    "trace the worker": "call('ptrace', 0x4206, PARENT, 0, 0)",  # PTRACE_SEIZE
    "take the worker's descriptors": "call('syscall', 438, call('syscall', 434, PARENT, 0), 0, 0)",  # pidfd_getfd
    "signal the worker": "os.kill(PARENT, 0)",
    "signal its process group": "os.kill(0, 0)",
    "limit the worker": "resource.prlimit(PARENT, resource.RLIMIT_CORE, (0, 0))",
    "lift its limit of memory": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "have a file in memory": "os.memfd_create('x')",
    "submit to io_uring": "call('syscall', 425, 1, ctypes.create_string_buffer(120))",
    "get namespaces of its own": "call('unshare', 0x10000000)",
    "change its user": "os.setuid(0)",
}
DENIED = ("Operation not permitted", "Permission denied", "not allowed to raise maximum limit")


@pytest_asyncio.fixture
async def decoder(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Decoder]:
    monkeypatch.syspath_prepend(TRAPS)
    monkeypatch.setenv("REDIS_URL", "redis://:hunter2@localhost")
    one = Decoder(JOB)
    await one.wait_until_ready()
    yield one
    await one.close()


@pytest.fixture
def prey(tmp_path: Path) -> Iterator[dict[str, object]]:
    """Return what there is to be taken."""
    outside = tmp_path / "outside"
    outside.write_text("secret")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
        unix.listen()
        yield {
            "OUTSIDE": str(outside),
            "FOLDER": str(tmp_path),
            "PORT": tcp.getsockname()[1],
            "SOCKET": str(tmp_path / "socket"),
            "EXECUTABLE": sys.executable,
            "PARENT": os.getpid(),
            "SECRET": struct.pack("QQ", ctypes.addressof(SECRET), len(SECRET)),
        }


async def run(decoder: Decoder, code: str, **names: object) -> str:
    """Run an expression in a decoder, by a picture; return what came of it."""
    told = "".join(f"({name} := {value!r}), " for name, value in names.items())
    body = picture(comment=EXPLOIT + f"[{told}{code}][-1]".encode() + b"\0")
    with pytest.raises(UnreadableImage) as caught:
        await decoder.analyse((), body, MAX_MEMORY)
    return str(caught.value).removeprefix("JPEG: ")


async def test_a_decoder_that_is_taken_over_can_do_nothing(decoder: Decoder, prey: dict[str, object]) -> None:
    if decoder.unprotected:
        pytest.skip("; ".join(decoder.unprotected))
    assert await run(decoder, "1 + 1") == "done: 2"  # it does run what the picture says
    outcomes = {attempt: await run(decoder, code, **prey) for attempt, code in ATTEMPTS.items()}
    for attempt, outcome in outcomes.items():
        assert outcome.startswith("denied: "), attempt
        assert any(words in outcome for words in DENIED), (attempt, outcome)


async def test_a_decoder_has_nothing_of_the_workers_environment(decoder: Decoder) -> None:
    names = await run(decoder, "sorted(os.environ)")
    known = {"LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH"}
    assert set(ast.literal_eval(names.removeprefix("done: "))) <= known | decoders._MALLOC.keys()


async def test_a_decoder_has_none_of_the_workers_descriptors(decoder: Decoder, tmp_path: Path) -> None:
    with (tmp_path / "inherited").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        one = Decoder(JOB)
        await one.wait_until_ready()
        assert (
            await run(one, "[n for n in range(3, 10_000) if libc.lseek(n, 0, 1) >= 0 or ctypes.get_errno() != 9]")
            == "done: []"
        )
        await one.close()


async def test_a_decoder_has_no_privileges_and_leaves_no_core_dump(decoder: Decoder) -> None:
    status = Path(f"/proc/{decoder.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {fields[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
    assert fields["NoNewPrivs"] == "1"
    assert await run(decoder, "resource.getrlimit(resource.RLIMIT_CORE)") == "done: (0, 0)"


# The layers one by one, each in a process that has no other.

ALONE = """
import os, socket, subprocess, sys
from crawlproject.imaging import sandbox
path, port = sys.argv[1], int(sys.argv[2])
def connect():
    with socket.socket() as one:
        one.connect(("127.0.0.1", port))
ways = {
    "read": lambda: open(path).read(), "write": lambda: open(path, "a"), "connect": connect,
    "run": lambda: subprocess.run(["/bin/true"]), "signal": lambda: os.kill(os.getppid(), 0),
}
try:
    LAYER
except OSError as error:
    print("missing", error.strerror, *ways)
    sys.exit()
for name, way in ways.items():
    try:
        way()
    except OSError as error:
        print(name)
"""


@pytest.mark.parametrize(
    ("layer", "denied"),
    [
        ("pass", set()),
        ("sandbox._prctl(38, 1); sandbox.filter_calls()", {"read", "write", "connect", "run", "signal"}),
        ("sandbox._prctl(38, 1); sandbox.restrict_files()", {"read", "write", "run"}),  # and more, by its version
        ("sandbox._limit(False)", {"read", "write", "connect", "run"}),
    ],
)
def test_each_layer_holds_alone(layer: str, denied: set[str], prey: dict[str, object]) -> None:
    command = [sys.executable, "-c", ALONE.replace("LAYER", layer), str(prey["OUTSIDE"]), str(prey["PORT"])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    words = set(done.stdout.split())
    if "missing" in words:
        pytest.skip(done.stdout)
    assert words >= denied
    assert bool(words) == bool(denied)


THREADS = """
import os, sys, threading
from crawlproject.imaging import sandbox
if os.getuid() == 0:  # whom the kernel does not limit
    os.setuid(4321)
sandbox._limit(True)
threading.stack_size(65_536)
for started in range(sandbox._MOST_THREADS):
    try:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    except RuntimeError:
        break
else:
    sys.exit("not limited")
print(started)
"""


def test_the_threads_of_a_user_but_root_are_limited() -> None:
    code = THREADS.replace("sandbox._limit", "sandbox._MOST_THREADS = 256; sandbox._limit")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 64 <= int(done.stdout) < 256


WORKER = """
import os, sys
from crawlproject.imaging import sandbox
sandbox._drop_capabilities()  # with which root reads everything
if sys.argv[1] == "hidden":
    sandbox.hide()
worker = os.getpid()
if not os.fork():
    try:
        print("hunter2" in open(f"/proc/{worker}/environ").read())
    except PermissionError:
        print("denied")
else:
    os.wait()
"""


@pytest.mark.parametrize("state", ["plain", "hidden"])
def test_nobody_reads_the_environment_of_a_hidden_process(state: str) -> None:
    environ = os.environ | {"REDIS_URL": "redis://:hunter2@localhost"}
    done = subprocess.run(
        [sys.executable, "-c", WORKER, state], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == ("denied\n" if state == "hidden" else "True\n")


def test_a_process_that_starts_decoders_is_hidden() -> None:
    code = (
        "import asyncio, ctypes; from crawlproject.imaging.decoders import Decoder\n"
        "from crawlproject.imaging.messages import Job\n"
        "Decoder(Job(1, 1, 85, 1)).kill()\n"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"  # PR_GET_DUMPABLE
    )
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


LACKING = """
import asyncio, ctypes, io, logging, struct, sys
from PIL import Image
from crawlproject.imaging import sandbox
from crawlproject.imaging.decoders import Decoders
from crawlproject.imaging.messages import Job

# A kernel without these calls: what starts here gets ENOSYS for them.
numbers = {"Landlock": 444, "seccomp": sandbox._SECCOMP[sandbox._ARCHITECTURES[sandbox.platform.machine()][0]]}
program = [(0x20, 0, 0, 0)]
for name in sys.argv[1:]:
    program += [(0x15, 0, 1, numbers[name]), (0x06, 0, 0, sandbox._ENOSYS)]
code = b"".join(struct.pack("HBBI", *each) for each in [*program, (0x06, 0, 0, sandbox._ALLOW)])
sandbox._prctl(38, 1)
assert not sandbox._call(numbers["seccomp"], 1, 0, ctypes.byref(sandbox._Program(len(code) // 8, code)))

async def main():
    out = io.BytesIO()
    Image.new("RGB", (9, 9)).save(out, "PNG")
    decoders = Decoders(2, Job(10**6, 10**6, 85, 60))
    await asyncio.gather(*(decoders.analyse(out.getvalue()) for _ in range(2)))
    await decoders.close()

logging.basicConfig(format="%(levelname)s %(message)s")
asyncio.run(main())
"""


async def test_what_a_kernel_lacks_is_said_once_by_name_and_pictures_are_decoded(decoder: Decoder) -> None:
    if decoder.unprotected:
        pytest.skip("; ".join(decoder.unprotected))
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", LACKING, "Landlock", "seccomp"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("WARNING A picture that takes over its decoder")
    for words in ("no Landlock (", "no seccomp (", "nothing keeps it from the files and the network"):
        assert words in line


# What it must not cost.


def has_threads(name: str) -> bool:
    one = JOB.plugin(name)
    return one is not None and one.has_threads


@pytest.mark.parametrize(("form", "threads"), [("JPEG", True), ("WebP", False)])
async def test_everything_is_decoded_as_without_a_sandbox(form: str, threads: bool) -> None:
    formats = tuple(name for name in readable() if threads or not has_threads(name))
    one = Decoder(replace(JOB, formats=formats, form=form))
    for body in samples():
        try:
            expected: object = analyse(body, max_pixels=JOB.max_pixels, formats=formats, form=form)
        except UnreadableImage as error:
            expected = str(error)
        try:
            made: object = await one.analyse((), body, MAX_MEMORY)
        except UnreadableImage as error:
            made = str(error)
        assert made == expected
    await one.close()
