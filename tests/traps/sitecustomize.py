"""What C libraries may do to a decoder process: this, where a body asks for it. The worker stays as it is.

Python imports it at its start, where this folder is on its path.
"""

import os
import signal
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any

CRASH, CRASH_ONCE, SPIN, SLEEP, HOG, BABBLE, BEG, BEG_MORE = (b"trap:%d" % number for number in range(8))


class NeedsMemory(MemoryError):
    """So much memory, in bytes, it says."""

    def __init__(self, needed: float) -> None:
        super().__init__()
        self.needed = needed


def spring(body: bytes) -> None:
    """Do what the body asks for."""
    if CRASH in body or (CRASH_ONCE in body and not Path(os.environ["CRASHED"]).exists()):
        Path(os.environ.get("CRASHED", os.devnull)).touch()
        os.kill(os.getpid(), signal.SIGSEGV)
    if SPIN in body:
        while True:
            pass
    if SLEEP in body:
        time.sleep(600)
    if HOG in body:
        hoard = []
        while True:
            hoard.append(b"x" * 20_000_000)
    if BABBLE in body:
        os.write(0, b"nonsense" * 100)
    if BEG in body:
        raise NeedsMemory(1)
    if BEG_MORE in body:
        raise NeedsMemory(float("inf"))


if "crawlproject.imaging.child" in sys.orig_argv:
    from PIL import Image

    image_open = Image.open

    def trapped(file: BytesIO, *args: Any, **kwargs: Any) -> Any:
        spring(file.getvalue())
        return image_open(file, *args, **kwargs)

    Image.open = trapped  # type: ignore[assignment]
