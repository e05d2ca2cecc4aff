"""How far a feed of files has come: behind which row of which file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from crawlproject.errors import BadInput
from crawlproject.ingest.seed_files import STDIN, SeedFile, absolute
from crawlproject.ingest.seed_rows import Columns


@dataclass(frozen=True, slots=True)
class Position:
    """Behind the line or row `row` of the file with this `index` (0: before its first); all before it are fed.

    `of`: the feed is of so many files, whatever comes behind them; 0: also of those that come while it lasts.
    """

    index: int = 0
    row: int = 0
    of: int = 0

    def text(self, files: Sequence[SeedFile]) -> str:
        """Return it as it is kept, with a digest of the files that must stay as they are."""
        return json.dumps([self.index, self.row, self._digest(files), self.of])

    def _digest(self, files: Sequence[SeedFile]) -> str:
        """Return what tells whether the files are the same: all, or those up to the one that is fed in part."""
        fed = files[: self.of or self.index + bool(self.row)]
        text = "".join(f"{file.name}\n{file.size}\n{file.modified}\n" for file in fed)
        return _sha1(text)

    @classmethod
    def of_text(cls, text: str, files: Sequence[SeedFile]) -> Self:
        """Return the position that was kept of the same files, of which there may be more now.

        Raises:
            BadInput: they are not the same any more up to there.

        """
        try:
            index, row, digest, of = json.loads(text)
            position = cls(int(index), int(row), int(of))
        except (ValueError, TypeError, RecursionError):
            raise BadInput(f"the position of the last feed cannot be read: {text!r:.80}; {_REMEDY}") from None
        if max(position.index, position.of) > len(files) or digest != position._digest(files):
            at = files[position.index].name if position.index < len(files) else "the last file"
            which = f"all {position.of}" if position.of else f"up to {at}"
            raise BadInput(
                f"the files, {which}, are not as they were when their feed stopped behind row {position.row} of "
                f"{at if position.of else 'it'}: some have changed, come or gone; "
                f"{_REMEDY_AGAIN if position.of else _REMEDY}"
            )
        return position


_REMEDY = "feed them without --resume: seeds that were crawled before are dropped as duplicates"
_REMEDY_AGAIN = "begin without --resume: images that were fed are probed once more"


def feed_name(names: Sequence[str], columns: Columns) -> str:
    """Return what a feed of these arguments is known by: other seeds of the same files are another feed."""
    options = [sorted(columns.named.items()), sorted(columns.kept), columns.probe, columns.again]
    files = [name if name == STDIN else absolute(name) for name in names]
    return _sha1("\n".join((json.dumps(options), *files)))


def _sha1(text: str) -> str:
    return hashlib.sha1(text.encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()
