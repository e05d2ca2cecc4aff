"""Commands of scrapy, each in a process forked after all imports, which take most of a command's time.

`python -m tests.forks` runs a command for each line of its stdin and answers with its exit status. Tests
that are about the start of a command start it themselves.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from scrapy.cmdline import execute
from scrapy.utils.misc import walk_modules_iter

ROOT = Path(__file__).parents[1]
_STREAMS = ("stdin", "stdout", "stderr")
_TIMEOUT_S = 120


class Forks:
    """A process that forks for each command."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="crawl-forks-")
        command, pipe = [sys.executable, "-m", "tests.forks"], subprocess.PIPE
        self._server = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def run(
        self, args: Sequence[str], environ: Mapping[str, str], stdin: str = "", cwd: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        """Run `scrapy ARGS` in a folder; only one command runs at a time.

        Raises:
            subprocess.TimeoutExpired: it took more than two minutes, and was killed.

        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        files = [Path(self._folder.name) / name for name in _STREAMS]
        files[0].write_text(stdin)
        self._server.stdin.write(json.dumps([args, dict(environ), list(map(str, files)), str(cwd)]) + "\n")
        self._server.stdin.flush()
        status = int(self._server.stdout.readline())
        if status == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(args, _TIMEOUT_S)
        return subprocess.CompletedProcess(args, status, files[1].read_text(), files[2].read_text())

    def stop(self) -> None:
        """End the process."""
        self._server.communicate()
        self._folder.cleanup()


@cache
def forks() -> Forks:
    """Return the process that all share."""
    return Forks()


def _become(args: list[str], environ: dict[str, str], files: list[str], cwd: str) -> None:
    """Be `scrapy ARGS`."""
    signal.alarm(_TIMEOUT_S)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    for number, name in enumerate(files):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY), number)
    execute(["scrapy", *args])


def main() -> None:
    """Fork until stdin ends."""
    for package in ("scrapy.commands", "crawlproject.commands"):
        list(walk_modules_iter(package))
    gc.freeze()  # the final collection of each command skips what all share
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if not child:
            return _become(*json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


if __name__ == "__main__":
    main()
