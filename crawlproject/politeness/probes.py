"""What is asked for in part, or only if it has changed, and what an answer says of the whole.

Conditional requests and versions are those of RFC 9110, sections 8.8 and 13, parts those of section 14.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Self

from scrapy import Request
from scrapy.http import Response

from crawlproject.politeness.outcomes import Outcome, of_probe, retry_after_of
from crawlproject.texts import LONGEST_URL, without_userinfo

UNCHANGED, CHANGED = "unchanged", "changed"  # what a probe has found of a picture that was known, in events

PROBE_BYTES = 32_768  # of the beginning of a picture, that are asked for
CONDITIONS = ("If-None-Match", "If-Modified-Since")

_LARGEST = 2**62  # bytes; msgpack and Parquet have numbers up to 2**63
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII | re.IGNORECASE)


_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,254}"')
_DATE = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", re.ASCII)


class Version(NamedTuple):
    """A version by the headers ETag and Last-Modified; "" where there is none that can be sent back."""

    etag: str = ""
    modified: str = ""

    @classmethod
    def of(cls, etag: str | bytes | None, modified: str | bytes | None) -> Version:
        """Return the version by these headers, without what is not as RFC 9110 has it."""
        found, date = _text(etag), _text(modified)
        return cls(found if _ETAG.fullmatch(found) else "", date if _DATE.fullmatch(date) else "")

    @property
    def conditions(self) -> Mapping[str, str]:
        """The headers by which a site is asked for an answer only if it has another version."""
        return {name: text for name, text in zip(CONDITIONS, self, strict=True) if text}

    def is_as(self, before: Version) -> bool | None:
        """Tell whether this is the same version, by its ETag, else by its date; None where nothing tells."""
        if self.etag and before.etag:  # a weak one says as much: that of a picture coded anew
            return self.etag.removeprefix("W/") == before.etag.removeprefix("W/")
        return self.modified == before.modified if self.modified and before.modified else None


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


def outcome_of(response: Response, request: Request, known: Known, gone: Collection[int] = ()) -> Outcome:
    """Return the outcome of a response to a probe; `gone` are further statuses of link rot at its source."""
    part = Part.of(response.headers.get("Content-Range"))
    return of_probe(
        response.status,
        retry_after_of(response),
        gone,
        begins=None if known.whole else part is not None and part.first == 0,
        conditional=any(name in request.headers for name in CONDITIONS),
    )


def _shown(value: Any) -> str:
    return f"{without_userinfo(repr(value)):.80}"


def _text(value: str | bytes | None) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value or ""
