"""The beginnings of pictures in a decoder, and those in the formats of plug-ins."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from crawlproject import plugins
from crawlproject.contrib.probes.beginning import read_beginning
from crawlproject.contrib.probes.events import ProbedFacts
from crawlproject.imaging.analyse import load_plugins
from crawlproject.imaging.decoders import Decoders
from crawlproject.imaging.failures import UnreadableImage
from crawlproject.imaging.messages import Inspected, facts_of
from tests.contrib.probes.test_beginning import JOB
from tests.imaging.analysing import picture
from tests.imaging.test_decoders import GOOD, Make, make
from tests.imaging.test_formats import picture as in_format
from tests.traps.sitecustomize import CRASH

__all__ = ["make"]

FORMATS = plugins.offered("formats")


async def probe(one: Decoders, body: bytes, codings: Sequence[str] = (), *, whole: bool) -> Any:
    def read(reply: Any) -> Any:
        return facts_of(ProbedFacts, json.loads(reply.text), reply, unknown=ProbedFacts.__slots__)

    return await one.inspect(
        Inspected("whole" if whole else "beginning", read, "museum", 206, body, tuple(codings))
    )


async def test_it_is_looked_at_in_a_decoder_like_any_picture(make: Make) -> None:
    one = make(formats=("JPEG", "GIF"))
    facts = await probe(one, GOOD[:-20], whole=False)
    assert (facts.width, facts.height, facts.sha256) == (90, 60, None)
    facts = await probe(one, gzip.compress(GOOD), ("gzip",), whole=True)
    assert facts.sha256 == hashlib.sha256(GOOD).hexdigest()
    for body, reason in (
        (picture("GIF", comment=CRASH), "crashes the decoder: killed by SIGSEGV"),
        (b"<html>", "not a picture in a supported format"),
        (picture("PNG"), "not a picture in a supported format: PNG, which CRAWL_FORMATS leaves out"),
    ):
        with pytest.raises(UnreadableImage, match=reason):
            await probe(one, body, whole=False)
    assert (await probe(one, GOOD, whole=True)).width == 90


@pytest.mark.parametrize("name", ["HEIF", "JXL"])
def test_the_size_of_what_a_library_may_turn_is_left_open(name: str) -> None:
    if name not in FORMATS:
        pytest.skip("that plug-in was deleted")
    pytest.importorskip(plugins.format_at(FORMATS[name]).module)
    job, _ = load_plugins(replace(JOB, formats=("JPEG", name)))
    body = in_format(name)
    assert read_beginning(body, job, whole=False) == ProbedFacts(name)
    assert read_beginning(body, job, whole=True) == ProbedFacts(name, sha256=hashlib.sha256(body).hexdigest())


@pytest.mark.skipif("SVG" not in FORMATS, reason="that plug-in was deleted")
def test_of_an_svg_its_start_tag_is_needed() -> None:
    job = replace(JOB, formats=("JPEG", "SVG"))
    body = b'<svg xmlns="http://www.w3.org/2000/svg" width="3" height="2">' + b" " * 50_000 + b"</svg>"
    assert read_beginning(body[:100], job, whole=False) == ProbedFacts("SVG", 3, 2, None, {})
    digest = hashlib.sha256(body).hexdigest()
    assert read_beginning(body, job, whole=True) == ProbedFacts("SVG", 3, 2, None, {}, digest)
    with pytest.raises(UnreadableImage, match="not a picture in a supported format"):
        read_beginning(body[:40], job, whole=False)
