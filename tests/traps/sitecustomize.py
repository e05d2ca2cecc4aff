"""What C libraries may do to a decoder process: this, where a body asks for it. The worker stays as it is.

Python imports it at its start, where this folder is on its path.
"""

# All that an exploit may need is imported now: it can be no worse off than one that brings its own code.
import ctypes
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from io import BytesIO
from typing import Any

KINDS = (b"trap:%d " % number for number in range(7))
CRASH, CRASH_LATER, SPIN, SLEEP, HOG, LINGER, EXPLOIT = KINDS

libc = ctypes.CDLL(None, use_errno=True)
TOLD = (os, resource, signal, socket, struct, threading)  # what the code in an exploit uses
_seen = 0  # pictures before this one


def call(function: str, *arguments: Any) -> int:
    """Call a C function, as an exploit does; its error is an OSError."""
    ctypes.set_errno(0)
    result = int(getattr(libc, function)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def spin() -> None:
    """Use a core for ever."""
    while True:
        pass


class Done(Exception):
    """What came of an exploit."""


def exploit(code: str) -> None:
    """Run Python within the decoder, as code that a picture brings would; its result is the reason."""
    try:
        result = eval(code, globals())
    except OSError as error:
        raise Done(f"denied: {os.strerror(error.errno or 0)}") from None
    except BaseException as error:
        raise Done(f"denied: {error!r}") from None
    raise Done(f"done: {result!r}")


def spring(body: bytes) -> None:
    """Do what the body asks for."""
    global _seen
    seen, _seen = _seen, _seen + 1
    if EXPLOIT in body:
        exploit(body.split(EXPLOIT)[1].split(b"\0")[0].decode())
    if CRASH in body or (CRASH_LATER in body and seen):
        os.kill(os.getpid(), signal.SIGSEGV)
    if SPIN in body:
        spin()
    if SLEEP in body:
        time.sleep(600)
    if HOG in body:
        hoard = []
        while True:
            hoard.append(b"x" * 20_000_000)
    if LINGER in body:
        hoard = [bytes(300 << 20)]  # more than a first try has
        time.sleep(600)


if any("crawlproject.imaging.analyse" in argument for argument in sys.orig_argv):
    from PIL import Image

    image_open = Image.open

    def trapped(file: BytesIO, *args: Any, **kwargs: Any) -> Any:
        spring(file.getvalue())
        return image_open(file, *args, **kwargs)

    Image.open = trapped  # type: ignore[assignment]
