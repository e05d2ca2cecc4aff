"""HEIF and JPEG XL: what they give, and what they cannot do."""

from __future__ import annotations

import importlib
import io
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from crawlproject import plugins
from crawlproject.imaging.analyse import load_plugins
from crawlproject.imaging.failures import MemoryNeeded
from crawlproject.imaging.messages import Job
from tests.conftest import Scrapy
from tests.imaging import test_formats as of_pillow
from tests.imaging.test_formats import look, picture, reason

pytestmark = pytest.mark.filterwarnings("ignore:::PIL")

NAMES = ("HEIF", "JXL")


def needs(name: str) -> None:
    """Skip the test where the extra that reads this format is not installed."""
    pytest.importorskip(plugins.format_at(plugins.offered("formats")[name]).module)
    load_plugins(Job(1, 1, 1, 1, formats=(name,)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "check",
    [
        of_pillow.test_gives_facts_and_thumbnail,
        of_pillow.test_a_format_that_the_setting_leaves_out_is_named,
        of_pillow.test_the_limit_on_pixels_is_exact,
        of_pillow.test_memory_is_estimated_before_anything_is_decoded,
        of_pillow.test_only_unreadable_image_is_ever_raised,
    ],
)
def test_they_are_read_as_those_of_pillow(check: Callable[[str], None], name: str) -> None:
    needs(name)
    check(name)


def test_a_heif_that_holds_more_than_its_header_says_is_not_decoded() -> None:
    needs("HEIF")
    body = picture("HEIF", (2048, 1024))
    claimed = struct.pack(">II", 2048, 1024)
    assert body.count(claimed) == 1
    words = reason(body.replace(claimed, struct.pack(">II", 16, 16)), "HEIF")
    assert "Image size 2048x1024 exceeds the maximum image size" in words


@pytest.mark.parametrize(
    "body", [b"\xff\x0a", b"\0\0\0\x0cJXL \r\n\x87\n", b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(60)]
)
def test_a_broken_jpeg_xl_is_unreadable(body: bytes) -> None:
    needs("JXL")
    assert reason(body, "JXL").startswith("JXL: ")


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_of_the_extra_keeps_its_exif_and_is_upright(name: str) -> None:
    """Their decoders turn a picture by what its own header says, so its EXIF must not turn it once more."""
    needs(name)
    tags = Image.Exif()
    tags[0x13B], tags[0x112] = "Ansel", 6
    image = Image.linear_gradient("L").resize((90, 60)).convert("RGB")
    out = io.BytesIO()
    image.save(out, name, exif=tags.tobytes())
    made = look(out.getvalue(), name)
    assert made.facts.exif is not None
    assert made.facts.exif["0x13b"] == "Ansel"
    with Image.open(io.BytesIO(made.thumbnails[0].data)) as thumbnail:
        assert thumbnail.size == (made.facts.width, made.facts.height)


def test_a_jpeg_within_a_jpeg_xl_is_turned_by_its_exif(tmp_path: Path) -> None:
    needs("JXL")
    tags = Image.Exif()
    tags[0x112] = 6
    out = io.BytesIO()
    Image.linear_gradient("L").resize((90, 60)).convert("RGB").save(tmp_path / "a.jpg", exif=tags)
    with Image.open(tmp_path / "a.jpg") as jpeg:
        jpeg.save(out, "JXL", lossless_jpeg=True)
    made = look(out.getvalue(), "JXL")
    assert (made.facts.width, made.facts.height, made.facts.exif) == (90, 60, {"0x112": 6})
    with Image.open(io.BytesIO(made.thumbnails[0].data)) as thumbnail:
        assert thumbnail.size == (60, 90)


def test_a_heif_that_begins_as_an_avif_may_takes_the_memory_of_a_heif() -> None:
    needs("HEIF")
    body = picture("HEIF").replace(b"ftypheic", b"ftypmif1")
    assert look(body, "AVIF", "HEIF").facts.format == "HEIF"
    with pytest.raises(MemoryNeeded, match="HEIF of 90 x 60 pixels"):
        look(body, "AVIF", "HEIF", memory=16 * 5400 - 1)


def test_the_small_picture_in_a_heif_is_not_taken_for_the_picture() -> None:
    needs("HEIF")
    body = picture("HEIF", (800, 600), thumbnails=[400])
    assert look(body, "HEIF", sizes=(100,)).facts.width == 800
    options = importlib.import_module("pillow_heif").options
    assert (options.THUMBNAILS, options.DECODE_THREADS) == (False, 1)


def test_a_crawl_without_their_libraries_is_refused_in_a_sentence(scrapy: Scrapy, tmp_path: Path) -> None:
    # On PYTHONPATH: as if the extra were not installed.
    (tmp_path / "sitecustomize.py").write_text(
        'import sys\nsys.modules |= {"pillow_heif": None, "pillow_jxl": None}'
    )
    done = scrapy("crawl", "images", CRAWL_FORMATS="HEIF,JPEG,JXL", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "scrapy crawl: CRAWL_FORMATS names HEIF and JXL, whose libraries are not installed: "
        "pip install pillow-heif pillow-jxl-plugin, or leave out what needs them"
    )
