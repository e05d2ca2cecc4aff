"""The size of an SVG, and what an SVG cannot do to its reader."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crawlproject.contrib.formats.svg import MAX_BYTES, read_size
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.models import Analysis, ImageEvent, ImageFacts
from tests.imaging.analysing import broken
from tests.imaging.test_decoders import Make, make
from tests.imaging.test_formats import look, reason
from tests.pipelines.test_thumbnail import Make as MakePipeline
from tests.pipelines.test_thumbnail import Memory, fetched
from tests.pipelines.test_thumbnail import make as pipeline

__all__ = ["make", "pipeline"]

NAMESPACE = 'xmlns="http://www.w3.org/2000/svg"'


def svg(attributes: str, before: str = "") -> bytes:
    return f'{before}<svg {NAMESPACE} {attributes}><path d="M0 0"/></svg>'.encode()


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ('width="300" height="200"', (300, 200)),
        ('width="300px" height="200PX" viewBox="0 0 9 9"', (300, 200)),
        ('width="1in" height="2.54cm"', (96, 96)),
        ('width="40q" height="10mm"', (38, 38)),
        ('width="10em" height="10ex"', (160, 80)),
        ('viewBox="0 0 640 480"', (640, 480)),
        ('viewBox="-10,-10, 64.5 ,48"', (65, 48)),
        ('width="100%" height="100%" viewBox="0 0 640 480"', (640, 480)),
        ('width="320" viewBox="0 0 640 480"', (320, 240)),
        ('width="100%" height="120" viewBox="0 0 640 480"', (160, 120)),
        ('width="320" height="7" viewBox="0 0 0 0"', (320, 7)),
    ],
)
def test_width_and_height_decide_and_the_view_box_where_they_leave_it_open(
    attributes: str, size: tuple[int, int]
) -> None:
    assert read_size(svg(attributes)) == size


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ("", "neither width and height nor a viewBox"),
        ('width="300"', "neither width and height nor a viewBox"),
        ('viewBox="0 0 640"', "neither width and height nor a viewBox"),
        ('width="0" height="200"', "no picture is 0 x 200 pixels large"),
        ('width="1e999" height="200"', "no picture is inf x 200 pixels large"),
        (f'width="{"9" * 5000}" height="200"', "pixels large"),
        ('viewBox="0 0 1e308 1e-308" width="1e308"', "pixels large"),
    ],
)
def test_an_svg_without_a_possible_size_is_unreadable(attributes: str, words: str) -> None:
    with pytest.raises(UnreadableImage, match=words):
        read_size(svg(attributes))


DOCTYPE = '<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://127.0.0.1:9/svg11.dtd">'


@pytest.mark.parametrize(
    "body",
    [
        svg('viewBox="0 0 3 2"', '<?xml version="1.0" encoding="utf-8"?>\n<!-- by hand -->\n'),
        svg('viewBox="0 0 3 2"', f'<?xml version="1.0" standalone="no"?>{DOCTYPE}'),
        b"\xef\xbb\xbf" + svg('viewBox="0 0 3 2"'),
        svg('viewBox="0 0 3 2"').decode().encode("utf-16"),
        svg('viewBox="0 0 3 2"', '<?xml version="1.0" encoding="iso-8859-1"?><!-- é -->')
        .decode()
        .encode("latin-1"),
        b'<s:svg xmlns:s="http://www.w3.org/2000/svg" viewBox="0 0 3 2"><s:path/></s:svg>',
        gzip.compress(svg('viewBox="0 0 3 2"'), mtime=0),
        svg('viewBox="0 0 3 2"')[:-12],  # what comes after the start tag is not read
        svg('viewBox="0 0 3 2"') + b"\xff\0<&",
    ],
)
def test_finds_the_root_element_however_it_is_written(body: bytes) -> None:
    assert read_size(body) == (3, 2)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x1f\x8b junk",
        gzip.compress(b"no markup", mtime=0),
        b"<!DOCTYPE html><html><body><svg width='1' height='1'></svg></body></html>",
        b'<svg width="3" height="2"/>',  # no browser shows it either
        f'<symbol {NAMESPACE} width="3" height="2"/>'.encode(),
        f'<?xml version="1.0" encoding="x-none"?><svg {NAMESPACE} width="3" height="2"/>'.encode(),
        b"<!--" + b"x" * MAX_BYTES + b"-->" + svg('viewBox="0 0 3 2"'),
    ],
)
def test_whatever_has_another_root_is_no_svg(body: bytes) -> None:
    assert read_size(body) is None


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 30))


@pytest.mark.parametrize(
    "subset",
    [
        f'<!ENTITY l0 "lol">{LAUGHS}',
        '<!ENTITY l29 SYSTEM "file:///etc/passwd">',
        '<!ENTITY % l29 SYSTEM "http://127.0.0.1:9/evil.dtd"> %l29;',
        '<!ENTITY l29 "100">',
    ],
)
def test_entities_are_neither_expanded_nor_fetched(subset: str) -> None:
    with pytest.raises(UnreadableImage, match="it declares entities"):
        read_size(svg('width="&l29;" height="2"', f"<!DOCTYPE svg [{subset}]>"))


def test_no_file_is_opened_for_an_external_subset(tmp_path: Path) -> None:
    (tmp_path / "a.dtd").write_text('<!ENTITY wide "100"><!ATTLIST svg width CDATA "7">')
    before = f'<!DOCTYPE svg SYSTEM "{(tmp_path / "a.dtd").as_uri()}">'
    assert read_size(svg('viewBox="0 0 3 2"', before)) == (3, 2)


@pytest.mark.parametrize(
    "made",
    [
        lambda: b"<a>" * 1_000_000,
        lambda: svg('viewBox="0 0 3 2"') + b"<g>" * 1_000_000,
        lambda: b"<svg " + b" ".join(b"a%d='1'" % n for n in range(20_000)) + b">",
        lambda: b"<!--" * 1_000_000,
        lambda: b"<!DOCTYPE svg [<!ELEMENT a " + b"(" * 1_000_000,
        lambda: b"<!DOCTYPE svg [" + b"<!ATTLIST svg a CDATA 'b'>" * 100_000,
        lambda: svg(f'width="{"1" * 200_000}" height="{" " * 50_000}"'),
        lambda: gzip.compress(b"<a>" * 10_000_000),
        lambda: gzip.compress(svg('viewBox="0 0 3 2"') + bytes(300_000_000), 1),
    ],
)
def test_nesting_length_and_compression_cost_next_to_nothing(made: Callable[[], bytes]) -> None:
    body = made()
    began = time.process_time()
    try:
        read_size(body)
    except UnreadableImage as error:
        assert len(str(error)) < 200
    assert time.process_time() - began < 2  # it takes some milliseconds


def test_it_has_a_size_and_no_thumbnail_and_no_limit_on_pixels() -> None:
    body = svg('width="20000" height="10000"')
    facts = ImageFacts(20_000, 10_000, len(body), None, "SVG", hashlib.sha256(body).hexdigest(), None)
    assert look(body, "JPEG", "SVG", max_pixels=1) == Analysis(facts)


@pytest.mark.parametrize(
    "before",
    ["\n", '<?xml version="1.0"?>\n', '<?xml version="1.0"?>\n<!-- Made\nby hand -->\n', "<!DOCTYPE svg>"],
)
def test_one_that_is_left_out_is_named_whatever_comes_before_it(before: str) -> None:
    assert reason(svg("", before), "PNG").endswith(": SVG, which CRAWL_FORMATS leaves out")


def test_only_unreadable_image_is_ever_raised() -> None:
    rng, body = random.Random("SVG"), svg('width="90" height="60"')
    outcomes: set[type] = set()
    for _ in range(150):
        try:
            outcomes.add(type(look(broken(body, rng), "SVG")))
        except UnreadableImage as error:
            assert str(error).isprintable()
            outcomes.add(type(error))
    assert outcomes == {Analysis, UnreadableImage}


@pytest.mark.slow
async def test_a_decoder_reads_it_in_any_encoding(make: Make) -> None:
    one = make(formats=("SVG",))
    for encoding in ("utf-8", "utf-16", "iso-8859-1", "windows-1252", "koi8-r", "iso-8859-15"):
        text = f'<?xml version="1.0" encoding="{encoding}"?><!--\xa4--><svg {NAMESPACE} width="4" height="3"/>'
        made = await one.analyse(text.encode(encoding, "replace"))
        assert (made.facts.width, made.facts.height) == (4, 3)


@pytest.mark.slow
async def test_it_gets_an_event_and_nothing_is_stored_for_it(pipeline: MakePipeline) -> None:
    store = Memory(OSError("full"))
    item = await pipeline(store, CRAWL_FORMATS="JPEG,SVG").process_item(fetched(svg('viewBox="0 0 30 20"')))
    assert isinstance(item, ImageEvent)
    assert (item.width, item.height, item.thumbnail, store.written) == (30, 20, None, {})
    told = json.loads(item.to_json())
    assert (told["format"], told["thumbnail"], told["compression_quality"]) == ("SVG", None, None)
    assert "exif" not in told
