"""Clocks that are set while their processes run: a library that is loaded before libc's (shim.c).

Needs a C compiler.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHIM = Path(__file__).with_name("shim.c")


class Clocks:
    """The clocks of several processes, each by a name; their files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._moved: dict[str, tuple[float, float]] = {}
        self._library = folder / "set_clock.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(_SHIM)]
        subprocess.run(command, check=True)

    def environment(self, name: str) -> dict[str, str]:
        """Return what the environment of a process has for its clocks to follow `move`."""
        self.move(name)
        return {"LD_PRELOAD": str(self._library), "CLOCK_FILE": str(self._folder / name)}

    @contextmanager
    def inherited(self, name: str) -> Iterator[None]:
        """Have processes that are started meanwhile follow `move`."""
        added = self.environment(name)
        os.environ |= added
        try:
            yield
        finally:
            for variable in added:
                del os.environ[variable]

    def move(self, name: str, *, wall: float = 0.0, monotonic: float = 0.0) -> None:
        """Set the clocks of a process forward by so many seconds."""
        before = self._moved.get(name, (0.0, 0.0))
        self._moved[name] = (before[0] + wall, before[1] + monotonic)
        path = self._folder / name
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(struct.pack("dd", *self._moved[name]))
