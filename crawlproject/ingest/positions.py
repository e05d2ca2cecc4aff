"""How far a feed of files has come: behind which row of which file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from crawlproject.errors import BadInput
from crawlproject.ingest.seed_files import STDIN, SeedFile, absolute


@dataclass(frozen=True, slots=True)
class Position:
    """Behind the line or row `row` of the file with this `index` (0: before its first); all before it are fed."""

    index: int = 0
    row: int = 0

    def text(self, files: Sequence[SeedFile]) -> str:
        """Return it as it is kept, with a digest of the files up to there."""
        return json.dumps([self.index, self.row, self._digest(files)])

    def _digest(self, files: Sequence[SeedFile]) -> str:
        """Return what tells whether the files are the same, up to the one that is fed in part."""
        fed = files[: self.index + bool(self.row)]
        text = "".join(f"{file.name}\n{file.size}\n{file.modified}\n" for file in fed)
        return _sha1(text)

    @classmethod
    def of_text(cls, text: str, files: Sequence[SeedFile]) -> Self:
        """Return the position that was kept of the same files, of which there may be more now.

        Raises:
            BadInput: they are not the same any more up to there.

        """
        try:
            index, row, digest = json.loads(text)
            position = cls(int(index), int(row))
        except (ValueError, TypeError, RecursionError):
            raise BadInput(f"the position of the last feed cannot be read: {text!r:.80}; {_REMEDY}") from None
        if position.index > len(files) or digest != position._digest(files):
            at = files[position.index].name if position.index < len(files) else "the last file"
            raise BadInput(
                f"the files up to {at} are not as they were when their feed stopped behind row {position.row} of "
                f"it: some have changed, come or gone; {_REMEDY}"
            )
        return position


_REMEDY = "feed them without --resume: seeds that were crawled before are dropped as duplicates"


def feed_name(names: Sequence[str]) -> str:
    """Return what a feed of these arguments is known by."""
    return _sha1("\n".join(name if name == STDIN else absolute(name) for name in names))


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()
