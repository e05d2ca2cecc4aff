"""WebP as Pillow reads it, but decoded at the size that is wanted.

Pillow decodes a still picture as an animation of one frame, in full size, and copies it twice. libwebp's own
decoder takes a fifth less, and scales large ones while it decodes them: 12 megapixels take half the time. It is
called by ctypes in the library that Pillow has loaded (src/webp/decode.h of libwebp). Where it cannot be found
there, because Pillow was linked in another way, Pillow decodes.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any

from PIL import Image, _webp
from PIL.WebPImagePlugin import WebPImageFile, _accept

_ABI = 0x0209  # of libwebp 1.6; the library refuses another upper half

# Scaling takes time, and a little quality: it is worth it below so many times the width and height. At 0.3 it
# saves a seventh of decoding, at 0.47 nothing; SSIM p5 0.9387 for 0.9420.
_WORTH_IT = 0.4

_MODE_RGBA = 1
_LOSSY = 1
_OUT_OF_MEMORY = 1
_Int, _Size, _Pointer = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class _Features(ctypes.Structure):
    """struct WebPBitstreamFeatures."""

    _fields_ = (*_fields(_Int, "width height has_alpha has_animation format"), ("pad", ctypes.c_uint32 * 5))


class _Rows(ctypes.Structure):
    """struct WebPRGBABuffer."""

    _fields_ = (("rgba", _Pointer), ("stride", _Int), ("size", _Size))


class _Planes(ctypes.Structure):
    """struct WebPYUVABuffer, which is not used."""

    _fields_ = (
        *_fields(_Pointer, "y u v a"),
        *_fields(_Int, "y_stride u_stride v_stride a_stride"),
        *_fields(_Size, "y_size u_size v_size a_size"),
    )


class _Either(ctypes.Union):
    _fields_ = (("rows", _Rows), ("planes", _Planes))


class _Output(ctypes.Structure):
    """struct WebPDecBuffer."""

    _fields_ = (
        *_fields(_Int, "colorspace width height is_external_memory"),
        ("either", _Either),
        ("pad", ctypes.c_uint32 * 4),
        ("private_memory", _Pointer),
    )


class _Options(ctypes.Structure):
    """struct WebPDecoderOptions."""

    _fields_ = (
        *_fields(_Int, "bypass_filtering no_fancy_upsampling"),
        *_fields(_Int, "use_cropping crop_left crop_top crop_width crop_height"),
        *_fields(_Int, "use_scaling scaled_width scaled_height"),
        *_fields(_Int, "use_threads dithering_strength flip alpha_dithering_strength"),
        ("pad", ctypes.c_uint32 * 5),
    )


class _Config(ctypes.Structure):
    """struct WebPDecoderConfig."""

    _fields_ = (("input", _Features), ("output", _Output), ("options", _Options))


def _library() -> ctypes.CDLL | None:
    """Return the libwebp that Pillow has loaded; None if its decoder cannot be called."""
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(_webp.__file__)  # and what it is linked to
        library.WebPInitDecoderConfigInternal.argtypes = [_Pointer, _Int]
        library.WebPGetFeaturesInternal.argtypes = [ctypes.c_char_p, _Size, _Pointer, _Int]
        library.WebPDecode.argtypes = [ctypes.c_char_p, _Size, _Pointer]
        if library.WebPInitDecoderConfigInternal(ctypes.byref(_Config()), _ABI):
            return library
    return None


_LIBRARY = _library()


def _features_of(body: bytes) -> _Features:
    """Return what the headers of a WebP say; nothing at all if they are broken."""
    features = _Features()
    assert _LIBRARY is not None
    _LIBRARY.WebPGetFeaturesInternal(body, len(body), ctypes.byref(features), _ABI)
    return features


def decoded(body: bytes, size: tuple[int, int]) -> bytearray:
    """Return the pixels of a still WebP, four bytes each, scaled to `size`.

    Raises:
        OSError: they cannot be decoded.
        MemoryError: libwebp has too little memory for them.

    """
    assert _LIBRARY is not None
    config, (width, height) = _Config(), size
    _LIBRARY.WebPInitDecoderConfigInternal(ctypes.byref(config), _ABI)
    features = config.input = _features_of(body)
    pixels = bytearray(width * height * 4)
    config.output.colorspace, config.output.is_external_memory = _MODE_RGBA, 1
    rows = config.output.either.rows
    rows.rgba = ctypes.addressof((ctypes.c_char * len(pixels)).from_buffer(pixels))
    rows.stride, rows.size = width * 4, len(pixels)
    if size != (features.width, features.height):
        config.options.use_scaling = 1
        config.options.scaled_width, config.options.scaled_height = size
    fault = _LIBRARY.WebPDecode(body, len(body), ctypes.byref(config))
    # libwebp says so of broken transparency, too.
    if fault == _OUT_OF_MEMORY and not (features.format == _LOSSY and features.has_alpha):
        raise MemoryError
    if fault:
        raise OSError(f"cannot be decoded (libwebp: {fault})")
    return pixels


def _has_stray_alpha(body: bytes) -> bool:
    """Tell whether it may have transparency without the flag for it, which Pillow ignores and libwebp heeds."""
    return body[12:16] == b"VP8X" and not body[20] & 0x10 and b"ALPH" in body


class ReducibleWebp(WebPImageFile):
    """A WebP that `draft` can make smaller while it is decoded, as Pillow's JPEGs."""

    _wanted: tuple[int, int] | None = None

    def draft(
        self, mode: str | None, size: tuple[int, int] | None
    ) -> tuple[str, tuple[int, int, float, float]] | None:
        """Have a still picture decoded at no less than `size`; return its mode, and the box that it takes there.

        Returns None if it will be decoded as it is by Pillow: an animation, perhaps of one frame, or something
        odd. `mode` is left as it is.
        """
        if _LIBRARY is None or self._wanted is not None or size is None or self.fp is None:
            return None
        self.fp.seek(0)
        body = self.fp.read()
        features = _features_of(body)
        if features.has_animation or not features.format or _has_stray_alpha(body):
            return None
        scale = max(wanted / side for wanted, side in zip(size, self.size, strict=True))
        # Without a word of it a lossless one may be transparent, and scaling would take that for black.
        if scale < _WORTH_IT and (features.format == _LOSSY or features.has_alpha):
            self._wanted = (round(self.width * scale) or 1, round(self.height * scale) or 1)
        else:
            self._wanted = self.size
        self._size = self._wanted
        return self.mode, (0, 0, *self.size)

    def load(self) -> Any:
        """Decode the picture, if that has not been done."""
        if self._wanted is None:
            return super().load()
        if self._im is None:
            assert self.fp is not None
            self.fp.seek(0)
            pixels = decoded(self.fp.read(), self._wanted)
            self.im = Image.frombytes(self.mode, self._wanted, pixels, "raw", self.rawmode).im
        return Image.Image.load(self)


def register() -> None:
    """Have Pillow open WebPs so. To be called after `Image.init()`, which registers its own."""
    Image.register_open(WebPImageFile.format, ReducibleWebp, _accept)
