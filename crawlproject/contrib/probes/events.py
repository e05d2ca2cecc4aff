"""The event of a probe, and the facts that it has of a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from crawlproject.models import Event

PROBE_BYTES = 32_768  # of the beginning of a picture, that are asked for


@dataclass(frozen=True, slots=True)
class ProbedFacts:
    """The facts in the beginning of a picture, each None where it may stand later in the file.

    `exif` is empty when there is none. `sha256` is that of the whole file, if it was all there. The others are as
    in `ImageFacts`.
    """

    format: str
    width: int | None = None
    height: int | None = None
    compression_quality: int | None = None
    exif: Mapping[str, Any] | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ProbeEvent(Event):
    """Event `image_probes`: the picture is there, field for field as in docs/events.md."""

    STREAM: ClassVar[str] = "image_probes"
    OPTIONAL: ClassVar[frozenset[str]] = Event.OPTIONAL | {"tls_failure"}

    identifier: str
    url: str
    source: str
    width: int | None
    height: int | None
    filesize: int | None
    compression_quality: int | None
    format: str | None
    content_type: str | None
    sha256: str | None
    exif: Mapping[str, Any] | None
    etag: str | None
    last_modified: str | None
    revisit: str | None
    received: int
    fetched_at: str
    status: int
    final_url: str
    redirects: int
    attempts: int
    fetch_s: float | None
    opt_out: tuple[str, ...] = ()
    tls_failure: str | None = None
    extra: Mapping[str, Any] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What it adds to the counts of its source."""
        return {"probes": 1, "bytes": self.received}
