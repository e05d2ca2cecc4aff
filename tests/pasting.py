"""What happens when an operator copies the commands of a text into a shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

_COMMAND = re.compile(r"\bscrapy [a-z]")

# Each runs `touch`, or is an option, where a shell or a parser of options reads it as it stands.
HOSTILE = [
    "$(touch owned)",
    "$(touch${IFS}owned)",
    "`touch${IFS}owned`",
    "`touch owned`",
    "x;touch owned",
    "x|touch owned",
    "x&&touch owned",
    "x\ntouch owned\n",
    "'$(touch owned)'",
    '\'"$(touch owned)"',
    "\\'$(touch owned)",
    "x>owned",
    "<(touch owned)",
    "~/*?[a]{a,b}!!",
    "-rf",
    "--help",
]


def pasted(text: str) -> list[list[str]]:
    """Have a shell run the commands of scrapy in a text, each from `scrapy` to the end of its line.

    Return the words that `scrapy`, here a function of the shell's, was called with each time. What is no complete
    command is not run, as in a terminal.

    Raises:
        AssertionError: something else was run, or a file was written.

    """
    calls: list[list[str]] = []
    with TemporaryDirectory() as folder:
        for line in text.split("\n"):
            for found in _COMMAND.finditer(line):
                script = "scrapy() { printf '%s\\0' \"$@\"; }\n" + line[found.start() :]
                done = subprocess.run(["/bin/sh", "-c", script], cwd=folder, capture_output=True, check=False)
                assert list(Path(folder).iterdir()) == [], line
                if done.returncode == 0:
                    calls.append(done.stdout.decode().split("\0")[:-1])
                else:
                    assert b"yntax" in done.stderr, done.stderr  # nothing of it was run
    return calls
