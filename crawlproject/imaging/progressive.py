"""Progressive JPEGs without what their thumbnails would not show.

A progressive JPEG brings its coefficients in scans: first the coarse ones, then finer ones, then the last bits of
each (ITU-T T.81, G.1.1). libjpeg decodes all of them, which takes most of the time, though at a quarter of the
size few of a block's 64 show. Here others are left out before it sees them. What remains is a progressive JPEG,
which may end after any scan.
"""

from __future__ import annotations

import io
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from PIL.JpegImagePlugin import JpegImageFile

from crawlproject.imaging.headers import FRAMES, MAX_PARTS, SCAN, segments

_PROGRESSIVE = 0xC2  # SOF2; of the other kinds of progressive JPEGs there are next to none
_END = b"\xff\xd9"

# The last coefficient, in zigzag order, that shows at a quarter of the size or less: of 2 x 2. At an eighth the
# first would do, DC, but libjpeg blurs that if it knows no other.
_LAST = 4

# Bits that first scans may leave to later ones: with more of them the picture would be too coarse without these.
_MOST_BITS = 2


class _Sampling(NamedTuple):
    """How many blocks a component has in each unit."""

    across: int
    down: int


class _Scan(NamedTuple):
    """A scan of AC coefficients, from the number `first` on, at one in `scale` of their size (T.81, B.2.3)."""

    first: int
    scale: int
    refines: bool
    bits_left: int

    @classmethod
    def of(cls, header: bytes, scale: int, sampling: dict[int, _Sampling]) -> _Scan | None:
        """Read its header; None of DC coefficients."""
        components = header[2]
        first, _, bits = header[3 + 2 * components : 6 + 2 * components]
        if first == 0:
            return None
        # libjpeg decodes a component of fewer samples at twice the size rather than enlarge it.
        own, most = sampling[header[3]], [max(each) for each in zip(*sampling.values(), strict=True)]
        is_small = 2 * own.across <= most[0] and 2 * own.down <= most[1]
        return cls(first, scale // 2 if is_small else scale, bits >> 4 > 0, bits & 15)

    @property
    def is_coarse(self) -> bool:
        """Whether it leaves more bits to others than usual."""
        return self.bits_left > _MOST_BITS

    @property
    def is_needed(self) -> bool:
        """Whether it shows. What refines relies on what comes before: where that is left out, so is all of it."""
        if self.scale > 2:
            return self.first <= _LAST and not self.refines
        return self.scale < 2 or not self.refines or self.bits_left > 0


def leave_out_details(image: JpegImageFile) -> None:
    """Have a JPEG that `draft` has reduced decoded without scans that it does not need, if it is progressive."""
    scale = image.decoderconfig[0] if image.decoderconfig else 1
    if scale > 1 and image.info.get("progressive") and image.fp is not None:
        image.fp.seek(0)
        with suppress(IndexError, KeyError, ValueError):  # libjpeg will say what is broken
            image.fp = io.BytesIO(without_details(image.fp.read(), scale))


def without_details(body: bytes, scale: int) -> bytes:
    """Return a JPEG without the scans that hardly show at 1/`scale` of its size: 2, 4 or 8.

    At a half those are left out that bring the last bit of coefficients; at less, all that refine coefficients, or
    begin with fine ones. DC coefficients stay whole. What holds for a component is by the size that it is decoded
    at: one with half of the samples is at twice the scale. A JPEG that is not progressive, has no end, or scans of
    an unusual kind comes back as it is.

    Raises:
        IndexError, KeyError, ValueError: its segments are broken.

    """
    found = list(islice(segments(body), MAX_PARTS + 1))
    if not found or len(found) > MAX_PARTS:
        return body
    last = found[-1][1]
    end = body.find(_END, last + int.from_bytes(body[last : last + 2]))
    if end < 0:
        return body
    sampling: dict[int, _Sampling] = {}
    kept = [body[: found[0][1] - 2]]
    ends = [at - 2 for _, at in found[1:]] + [end]
    for (kind, at), stop in zip(found, ends, strict=True):
        if kind in FRAMES:
            if kind != _PROGRESSIVE:
                return body
            rows = body[at + 8 : at + 8 + 3 * body[at + 7]]
            sampling = {
                rows[row]: _Sampling(rows[row + 1] >> 4, rows[row + 1] & 15) for row in range(0, len(rows), 3)
            }
        scan = _Scan.of(body[at : at + 16], scale, sampling) if kind == SCAN else None
        if scan is not None and scan.is_coarse:
            return body
        if scan is None or scan.is_needed:
            kept.append(body[at - 2 : stop])
    return b"".join(kept) + _END
