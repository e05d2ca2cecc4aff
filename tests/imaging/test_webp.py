from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageStat
from PIL.WebPImagePlugin import WebPImageFile

from crawlproject.imaging import webp
from crawlproject.imaging.analyse import analyse
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.webp import ReducibleWebp

RED = (200, 40, 40)


def picture(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    """Return a picture with a gradient in each band."""
    bands = [Image.linear_gradient("L"), Image.radial_gradient("L"), Image.linear_gradient("L").rotate(90)]
    image = Image.merge("RGB", [band.resize(size) for band in bands])
    if mode == "RGBA":
        image.putalpha(Image.linear_gradient("L").rotate(180).resize(size))
    return image


def saved(image: Image.Image, **options: Any) -> bytes:
    """Return a WebP of it."""
    stream = io.BytesIO()
    image.save(stream, "WEBP", **options)
    return stream.getvalue()


def difference(one: Image.Image, other: Image.Image) -> float:
    """Return the largest mean difference of a band."""
    assert (one.mode, one.size) == (other.mode, other.size)
    return max(ImageStat.Stat(ImageChops.difference(one, other)).mean)


def on_white(image: Image.Image) -> Image.Image:
    """Return what is seen of it."""
    white = Image.new("RGB", image.size, "white")
    white.paste(image, (0, 0), image if image.mode == "RGBA" else None)
    return white


FORMS = [("RGB", {}), ("RGB", {"lossless": True}), ("RGBA", {}), ("RGBA", {"lossless": True, "exact": True})]


@pytest.mark.parametrize(("mode", "options"), FORMS)
def test_a_still_picture_has_the_pixels_that_pillow_would_give_it(mode: str, options: dict[str, Any]) -> None:
    body = saved(picture((301, 203), mode), **options)
    ours, pillows = ReducibleWebp(io.BytesIO(body)), WebPImageFile(io.BytesIO(body))
    assert ours.draft(None, (200, 150)) == (mode, (0, 0, 301, 203)), "too near to its size to be scaled"
    ours.load()
    assert (ours.mode, ours.size, ours.tobytes()) == (mode, (301, 203), pillows.tobytes())


@pytest.mark.parametrize(("mode", "options"), [form for form in FORMS if form != ("RGB", {"lossless": True})])
def test_a_large_one_is_scaled_while_it_is_decoded(mode: str, options: dict[str, Any]) -> None:
    body = saved(picture((1200, 700), mode), **options)
    image = ReducibleWebp(io.BytesIO(body))
    assert image.draft(None, (300, 100)) == (mode, (0, 0, 300, 175)), "no smaller than was asked for"
    image.load()
    whole = WebPImageFile(io.BytesIO(body)).resize((300, 175), Image.Resampling.BOX)
    assert difference(on_white(image), on_white(whole)) < 2


def test_a_lossless_one_that_does_not_speak_of_transparency_is_not_scaled() -> None:
    """It may be transparent all the same, and scaling would make that black."""
    image = ReducibleWebp(io.BytesIO(saved(picture((1200, 700)), lossless=True)))
    assert image.draft(None, (300, 100)) == ("RGB", (0, 0, 1200, 700))


def test_what_was_drafted_can_be_turned_and_read_again() -> None:
    image = ReducibleWebp(io.BytesIO(saved(picture((1200, 700)))))
    image.draft(None, (300, 175))
    assert image.draft(None, (100, 50)) is None, "once alone"
    image.load()
    assert image.transpose(Image.Transpose.ROTATE_90).size == (175, 300)
    assert image.convert("RGBA").getchannel("A").getextrema() == (255, 255)


def test_an_animation_is_left_to_pillow() -> None:
    first, second = Image.new("RGB", (900, 600), RED), Image.new("RGB", (900, 600), "lime")
    image = ReducibleWebp(io.BytesIO(saved(first, save_all=True, append_images=[second])))
    assert image.draft(None, (90, 60)) is None
    image.load()
    assert (image.size, image.n_frames) == ((900, 600), 2)
    assert difference(image.copy(), first) < 3


def test_without_the_decoder_pillow_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webp, "_LIBRARY", None)
    body = saved(picture((1200, 700)))
    image = ReducibleWebp(io.BytesIO(body))
    assert image.draft(None, (300, 175)) is None
    assert image.tobytes() == WebPImageFile(io.BytesIO(body)).tobytes()


def test_pixels_that_cannot_be_decoded_are_an_error() -> None:
    body = bytearray(saved(picture((300, 200)), lossless=True))
    body[30:] = bytes(len(body) - 30)  # the header says nothing wrong
    image = ReducibleWebp(io.BytesIO(bytes(body)))
    image.draft(None, (300, 200))
    with pytest.raises(OSError, match=r"cannot be decoded \(libwebp: \d\)"):
        image.load()


def test_a_very_narrow_picture_keeps_a_pixel() -> None:
    image = ReducibleWebp(io.BytesIO(saved(picture((3, 16_000)))))
    image.draft(None, (1, 960))
    image.load()
    assert min(image.size) >= 1
    assert image.getpixel((0, image.height - 1)) is not None


def chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of RIFF."""
    return name + len(data).to_bytes(4, "little") + data + b"\0" * (len(data) % 2)


def extended(flags: int, *chunks: bytes) -> bytes:
    """Return a WebP of 300 x 200 pixels with these flags and chunks (RFC 9649, 2.7)."""
    sizes = (299).to_bytes(3, "little") + (199).to_bytes(3, "little")
    body = b"WEBP" + chunk(b"VP8X", bytes([flags, 0, 0, 0]) + sizes) + b"".join(chunks)
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def frame() -> bytes:
    """Return the chunk of a lossy picture of 300 x 200 pixels."""
    return saved(picture((300, 200)))[12:]


ANIMATED, ALPHA = 0x02, 0x10


def test_an_animation_of_one_frame_is_read() -> None:
    sizes = (299).to_bytes(3, "little") + (199).to_bytes(3, "little")
    one = chunk(b"ANMF", bytes(6) + sizes + (100).to_bytes(3, "little") + b"\0" + frame())
    made = analyse(extended(ANIMATED, chunk(b"ANIM", bytes(6)), one), max_pixels=10**6, sizes=(50,))
    assert (made.facts.width, made.facts.height) == (300, 200)


@pytest.mark.parametrize("alpha", [bytes(60_001), bytes(20)])
def test_transparency_without_the_flag_for_it_is_ignored(alpha: bytes) -> None:
    made = analyse(extended(0, chunk(b"ALPH", alpha), frame()), max_pixels=10**6)
    plain = analyse(extended(0, frame()), max_pixels=10**6)
    assert made.thumbnails == plain.thumbnails


def test_broken_transparency_is_no_lack_of_memory() -> None:
    with pytest.raises(UnreadableImage, match="cannot be decoded"):
        analyse(extended(ALPHA, chunk(b"ALPH", bytes(20)), frame()), max_pixels=10**6)
