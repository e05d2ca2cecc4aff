"""Those who take part in the comparison, one folder each. A new one is a `Peer` and a line in registry.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol


class Seed(NamedTuple):
    """A picture to fetch, and the file that is served for it."""

    identifier: str
    url: str
    source: str
    picture: Path


class Start(NamedTuple):
    """How a peer is started: one process, which ends by itself when all is done."""

    command: list[str]
    folder: Path
    environment: Mapping[str, str]


class Peer(Protocol):
    """A program that fetches pictures and makes thumbnails of them, at most 640 pixels long, JPEG quality 85.

    `about` says in a line what it is. `extra` is filled by the end of a run: further figures, name to value,
    about that run.
    """

    name: str
    about: str
    extra: dict[str, float]

    def prepared(self, seeds: Sequence[Seed], home: Path) -> AbstractContextManager[Start]:
        """Return a context in which the peer can be started; what it writes lies in the empty folder `home`."""

    def thumbnails(self, seeds: Sequence[Seed], home: Path) -> dict[str, Path]:
        """Return the thumbnails that the run has left behind, by identifier."""
