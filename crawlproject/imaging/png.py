"""The pixels of a PNG, inflated by ISA-L, in a quarter of zlib's time.

Pillow reads all else of the file, undoes filters and interlacing, and knows the kinds of pixels. It gets them as a
zlib stream of stored blocks (RFC 1951, 3.2.4), which zlib merely copies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from isal.igzip_lib import DECOMP_ZLIB, IgzipDecompressor
from PIL.PngImagePlugin import PngImageFile

_PIECE = 65_536  # bytes of the file at a time
_LONGEST = 65_535  # bytes of a stored block
_BLOCK = struct.Struct("<BHH")  # its header: not the last block, length, its complement


def load(image: PngImageFile) -> bool:
    """Decode an opened picture; no more is inflated at a time than a block, nor in all than it has pixels.

    Return False if anything is unusual, be it a wrong checksum or a row too many. Its pixels are then worth
    nothing: Pillow alone has to decode it, opened again, and to say what is wrong. Raises MemoryError.
    """
    stream = IgzipDecompressor(DECOMP_ZLIB)
    blocks = _stored(stream, image.load_read)
    image.load_read = lambda read_bytes: next(blocks, b"")  # type: ignore[method-assign]
    try:
        image.load()
    except MemoryError:
        raise
    except Exception:  # on broken bytes Pillow may raise nearly anything
        return False
    finally:
        del image.load_read  # a cycle: without it the picture is freed at once
    return stream.eof


def _stored(stream: IgzipDecompressor, read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield the header of a zlib stream, which zlib itself will judge, and its contents in stored blocks."""
    data = read(_PIECE)
    yield data[:2]
    while not stream.eof:
        part = stream.decompress(data, _LONGEST)
        if part:
            yield _BLOCK.pack(0, len(part), len(part) ^ 0xFFFF)
            yield part
        elif not data:
            return
        data = read(_PIECE) if stream.needs_input else b""
