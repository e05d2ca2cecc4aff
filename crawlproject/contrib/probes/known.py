"""What is known of a picture that is probed, and what an answer says of it (parts: RFC 9110, section 14)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Self

from scrapy import Request
from scrapy.http import Response

from crawlproject.models import MODE
from crawlproject.politeness.outcomes import Outcome, of_status, retry_after_of
from crawlproject.politeness.versions import CONDITIONS, Version
from crawlproject.texts import LONGEST_URL, without_userinfo

UNCHANGED, CHANGED = "unchanged", "changed"  # what a probe has found of a picture that was known, in events

PROBE = "probe"  # the name of the mode, and of the seed's key

_LARGEST = 2**62  # bytes; msgpack and Parquet have numbers up to 2**63
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII | re.IGNORECASE)


class Known(NamedTuple):
    """What is known of a picture that is probed, as it stands in a seed and in a stored request.

    `final_url` has answered the last time ("": that of the seed), with this version and `filesize`, -1 for
    unknown. `whole`: the site does not give parts of it, or not as asked.
    """

    etag: str = ""
    last_modified: str = ""
    final_url: str = ""
    filesize: int = -1
    whole: bool = False

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return what a seed says: `true`, or an object with any of these fields, null for unknown.

        Raises:
            ValueError: it is something else; the message says what.

        """
        data = {} if value is True else value
        if not isinstance(data, Mapping) or not data.keys() <= cls._field_defaults.keys():
            fields = ", ".join(cls._fields[:-1])
            raise ValueError(f"probe must be true, or an object of {fields}: {_shown(value)}")
        known = cls(**{name: one for name, one in data.items() if one is not None})
        for name, text in zip(cls._fields[:3], known[:3], strict=True):
            if not isinstance(text, str) or len(text) > LONGEST_URL:
                raise ValueError(f"{name} of a probe must be text: {_shown(text)}")
        if known.version != Version(known.etag, known.last_modified):
            raise ValueError(
                f"etag or last_modified of a probe is not a valid header value (RFC 9110): {_shown(known[:2])}"
            )
        is_size = isinstance(known.filesize, int) and not isinstance(known.filesize, bool)
        if not is_size or not -1 <= known.filesize <= _LARGEST or not isinstance(known.whole, bool):
            raise ValueError(f"filesize of a probe must be a whole number from 0: {_shown(known.filesize)}")
        return known

    @property
    def stored(self) -> dict[str, Any]:
        """What of it differs from the defaults."""
        return {name: one for name, one in self._asdict().items() if one != self._field_defaults[name]}

    @property
    def version(self) -> Version:
        """The version, as far as it can be sent back."""
        return Version.of(self.etag, self.last_modified)

    def found(self, version: Version, filesize: int | None) -> str | None:
        """Return what an answer of this version and size says: `unchanged`, `changed`, None for nothing.

        A size counts only without versions, or if it is another one.
        """
        same = version.is_as(self.version)
        if filesize is not None and self.filesize >= 0 and same is not False:
            same = filesize == self.filesize
        return None if same is None else UNCHANGED if same else CHANGED


class Part(NamedTuple):
    """The part of a picture that a 206 brings: from the byte `first` on, of `total` (None: unknown)."""

    first: int
    total: int | None

    @classmethod
    def of(cls, header: bytes | None) -> Self | None:
        """Return the part that a Content-Range names (RFC 9110, section 14.4), None if it is invalid."""
        found = _RANGE.fullmatch((header or b"").decode("latin-1").strip())
        if found is None:
            return None
        first, last, total = int(found[1]), int(found[2]), None if found[3] == "*" else int(found[3])
        return None if last < first or (total is not None and last >= total) else cls(first, total)


def known_of(request: Request) -> Known | None:
    """Return what is known of the picture that a request probes; None if it is none of a probe."""
    mode, value = request.meta.get(MODE, (None, None))
    return Known.of(value) if mode == PROBE else None


def is_not_in_parts(response: Response, known: Known) -> bool:
    """Tell whether the site does not give parts, or not the one that was asked for."""
    is_other = response.status == 206 and not _begins(response)
    return not known.whole and (is_other or response.status == 416)


def outcome_of(response: Response, request: Request, known: Known, gone: Collection[int] = ()) -> Outcome:
    """Return the outcome of a response to a probe; `gone` are further statuses of link rot at its source."""
    is_part = response.status == 206 and not known.whole and _begins(response)
    is_unchanged = response.status == 304 and any(name in request.headers for name in CONDITIONS)
    if is_part or is_unchanged:  # the picture is there
        return of_status(200)
    return of_status(response.status, retry_after_of(response), gone)


def _begins(response: Response) -> bool:
    part = Part.of(response.headers.get("Content-Range"))
    return part is not None and part.first == 0


def _shown(value: Any) -> str:
    return f"{without_userinfo(repr(value)):.80}"
