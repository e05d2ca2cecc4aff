"""Versions of what a site has, and conditional requests (RFC 9110, sections 8.8 and 13)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

CONDITIONS = ("If-None-Match", "If-Modified-Since")

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


def _text(value: str | bytes | None) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value or ""
