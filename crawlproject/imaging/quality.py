"""The JPEG quality that corresponds to a file's quantisation tables, as ImageMagick estimates it.

The algorithm is that of `JPEGSetImageQuality` in ImageMagick's coders/jpeg.c (6 and 7 alike). It compares two
figures of the file, the sum of all table entries and the sum of a few selected entries, with the same two figures
of the tables that libjpeg makes for every quality. ImageMagick lists those as four arrays of 101 numbers; here
they are computed, with the same result, from the tables in the JPEG standard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# What `identify -format %Q` prints when it has no estimate.
NO_ESTIMATE = 92

# ITU-T T.81, tables K.1 and K.2, row by row.
_LUMINANCE = (
    *(16, 11, 10, 16, 24, 40, 51, 61),
    *(12, 12, 14, 19, 26, 58, 60, 55),
    *(14, 13, 16, 24, 40, 57, 69, 56),
    *(14, 17, 22, 29, 51, 87, 80, 62),
    *(18, 22, 37, 56, 68, 109, 103, 77),
    *(24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101),
    *(72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMINANCE = (
    *(17, 18, 24, 47, 99, 99, 99, 99),
    *(18, 21, 26, 66, 99, 99, 99, 99),
    *(24, 26, 56, 99, 99, 99, 99, 99),
    *(47, 66, 99, 99, 99, 99, 99, 99),
    *(99,) * 32,
)


def _scaled(table: Sequence[int], quality: int) -> list[int]:
    """Return a standard table at a quality of 1-100, by libjpeg's formula (`jpeg_set_quality`, baseline)."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return [min(255, max(1, (entry * percent + 50) // 100)) for entry in table]


def _probe(tables: Mapping[int, Sequence[int]]) -> int:
    """Return the sum of the entries that ImageMagick selects, of table 0 and, if present, table 1."""
    probe = tables[0][2] + tables[0][53]
    if 1 in tables:
        probe += tables[1][0] + tables[1][63]
    return probe


def _total(tables: Mapping[int, Sequence[int]]) -> int:
    return sum(map(sum, tables.values()))


def _marks(*standard: Sequence[int]) -> list[tuple[int, int]]:
    """Return probe and total of the standard tables for every quality, from 1 to 100."""
    scaled = [dict(enumerate(_scaled(table, quality) for table in standard)) for quality in range(1, 101)]
    return [(_probe(tables), _total(tables)) for tables in scaled]


_ONE_TABLE = _marks(_LUMINANCE)
_TWO_TABLES = _marks(_LUMINANCE, _CHROMINANCE)


def estimate_quality(tables: Mapping[int, Sequence[int]]) -> int | None:
    """Return the JPEG quality, 1-100, that ImageMagick's `identify -format %Q` prints for these tables.

    `tables` are the quantisation tables by their number in the file, 64 entries each, row by row (Pillow's
    `JpegImageFile.quantization`). Tables far from libjpeg's have no estimate below 51, and then the answer
    is `NO_ESTIMATE`, as with `identify`. None: there are no tables.
    """
    if not tables:
        return None
    if 0 not in tables:
        return NO_ESTIMATE
    probe, total = _probe(tables), _total(tables)
    for quality, (probe_mark, total_mark) in enumerate(_TWO_TABLES if 1 in tables else _ONE_TABLE, start=1):
        if probe < probe_mark and total < total_mark:
            continue
        # The first quality that is not clearly too low: below 51 ImageMagick requires both figures to fit.
        if quality > 50 or (probe <= probe_mark and total <= total_mark):
            return quality
        break
    return NO_ESTIMATE
