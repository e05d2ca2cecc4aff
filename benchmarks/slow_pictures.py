"""Pictures that take long to read: small, of many parts, each of which costs a step or a pass over the pixels."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

from PIL import Image


def saved(form: str, size: tuple[int, int] = (64, 48), **options: Any) -> bytes:
    """Return an ordinary picture."""
    out = io.BytesIO()
    Image.new("RGB", size, "teal").save(out, form, **options)
    return out.getvalue()


def scans(count: int, size: tuple[int, int] = (7000, 7000), progressive: bool = False) -> bytes:
    """Return a JPEG of so many scans, most of them empty; a baseline one has one component in each."""
    body = saved("JPEG", size, progressive=progressive, subsampling=0)
    if progressive:
        last = body.rindex(b"\xff\xda")
        return body[:-2] + body[last:-2] * (count - body.count(b"\xff\xda")) + body[-2:]
    head = body[: body.index(b"\xff\xda")]
    parts = [b"\xff\xda\0\x08\1" + bytes((number, 0x11 * (number > 1))) + b"\0\x3f\0\0" for number in (1, 2, 3)]
    return head + b"".join(parts[number % 3] for number in range(count)) + b"\xff\xd9"


def comments(count: int) -> bytes:
    """Return a JPEG of so many empty comments."""
    body = saved("JPEG")
    return body[:2] + b"\xff\xfe\0\2" * count + body[2:]


def tiff(tags: dict[int, tuple[int, int, bytes]], head: bytes = b"") -> bytes:
    """Return a TIFF of these tags: their type, the count of their values, and these; `head` comes before, at 8."""
    offset = 8 + len(head)
    table, values = b"", b""
    at = offset + 2 + 12 * len(tags) + 4
    for tag, (kind, number, data) in sorted(tags.items()):
        if len(data) > 4:
            place, values = struct.pack("<L", at + len(values)), values + data
        else:
            place = data.ljust(4, b"\0")
        table += struct.pack("<HHL", tag, kind, number) + place
    return b"II*\0" + struct.pack("<L", offset) + head + struct.pack("<H", len(tags)) + table + bytes(4) + values


def longs(*numbers: int) -> tuple[int, int, bytes]:
    """Return the value of a tag of `tiff`."""
    return 4, len(numbers), struct.pack(f"<{len(numbers)}L", *numbers)


def strips(count: int, compression: int = 1) -> bytes:
    """Return a TIFF of so many strips of a row each, of a pixel."""
    basic = {256: 1, 257: count, 258: 8, 259: compression, 262: 1, 277: 1, 278: 1}
    places = {273: longs(*range(8, 8 + count)), 279: (1, count, b"\1" * count)}
    return tiff({**{tag: longs(value) for tag, value in basic.items()}, **places}, b"\0")


def tiles(count: int, compression: int = 1) -> bytes:
    """Return a TIFF of so many tiles of 16 x 16 pixels, in a row."""
    basic = {256: 16 * count, 257: 16, 258: 8, 259: compression, 262: 1, 277: 1, 322: 16, 323: 16}
    places = {324: longs(*[8] * count), 325: longs(*[256] * count)}
    return tiff({**{tag: longs(value) for tag, value in basic.items()}, **places}, bytes(256))


def chunk(name: bytes, data: bytes = b"") -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">L", len(data)) + name + data + struct.pack(">L", zlib.crc32(name + data))


def chunks(count: int, name: bytes = b"prVt", data: bytes = b"") -> bytes:
    """Return a PNG of so many chunks before its pixels."""
    body = saved("PNG")
    return body[:33] + chunk(name, data) * count + body[33:]


def extensions(count: int) -> bytes:
    """Return a GIF of so many comments."""
    body = saved("GIF")
    at = body.index(b",", 13 + 3 * (2 << (body[10] & 7)))
    return body[:at] + b"!\xfe\x01a\0" * count + body[at:]


def layers(count: int, size: tuple[int, int] = (2000, 2000)) -> bytes:
    """Return a JPEG 2000 that claims so many quality layers."""
    body = bytearray(saved("JPEG2000", size, no_jp2=True))
    struct.pack_into(">H", body, body.index(b"\xff\x52") + 6, count)
    return bytes(body)
