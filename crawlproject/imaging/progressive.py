"""Progressive JPEGs without what their thumbnails would not show.

A progressive JPEG brings its coefficients in scans: first the coarse ones, then finer ones, then the last bits of
each (ITU-T T.81, G.1.1). libjpeg decodes all of them, which takes most of the time, and at a quarter of the size
uses four of 64. Here the others are left out before it sees them. What remains is a progressive JPEG, which may
end after any scan.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import NamedTuple

from PIL.JpegImagePlugin import JpegImageFile

from crawlproject.imaging.headers import FRAMES, SCAN, segments

_PROGRESSIVE = 0xC2  # SOF2; of the other kinds of progressive JPEGs there are next to none
_END = b"\xff\xd9"

# The last coefficient, in zigzag order, that a block needs at 1/2 and 1/4 of its size: of 4 x 4, of 2 x 2. At 1/8
# the first would do, DC, but libjpeg blurs that if it knows no other.
_LAST = {1: 63, 2: 24, 4: 4, 8: 4}


class _Sampling(NamedTuple):
    """How many blocks a component has in each unit."""

    across: int
    down: int


def leave_out_details(image: JpegImageFile) -> None:
    """Have a JPEG that `draft` has reduced decoded without scans that it does not need, if it is progressive."""
    scale = image.decoderconfig[0] if image.decoderconfig else 1
    if scale > 1 and image.info.get("progressive") and image.fp is not None:
        image.fp.seek(0)
        with suppress(IndexError, KeyError, ValueError):  # libjpeg will say what is broken
            image.fp = io.BytesIO(without_details(image.fp.read(), scale))


def without_details(body: bytes, scale: int) -> bytes:
    """Return a JPEG without the scans that hardly show at 1/`scale` of its size: 2, 4 or 8.

    Those are left out that have none of the coefficients which libjpeg uses at that size, and those that refine
    coefficients: at 1/2 by the last bit, else by any. DC coefficients stay whole. What holds for a component is by
    the size that it is decoded at: one with half of the samples is at twice the scale. A JPEG that is not
    progressive, or has no end, comes back as it is.
    """
    found = list(segments(body))
    end = body.find(_END, found[-1][1] + int.from_bytes(body[found[-1][1] :][:2])) if found else -1
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
        if kind != SCAN or _is_needed(body[at : at + 16], scale, sampling):
            kept.append(body[at - 2 : stop])
    return b"".join(kept) + _END


def _is_needed(header: bytes, scale: int, sampling: dict[int, _Sampling]) -> bool:
    """Tell whether a scan is needed, by its header (T.81, B.2.3)."""
    components = header[2]
    first, _, bits = header[3 + 2 * components : 6 + 2 * components]
    if first == 0:
        return True
    # libjpeg decodes a component of fewer samples at twice the size rather than enlarge it.
    own, most = sampling[header[3]], [max(each) for each in zip(*sampling.values(), strict=True)]
    is_small = 2 * own.across <= most[0] and 2 * own.down <= most[1]
    own_scale = scale // 2 if is_small else scale
    refines, last_bit = bits >> 4 > 0, bits & 15 == 0
    return first <= _LAST[own_scale] and not (refines and (own_scale > 2 or (own_scale == 2 and last_bit)))
