"""The functions that `CRAWL_ANALYSES` names: what they get, and what becomes of what they return or do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from crawlproject.imaging.analysis_runner import BadAnalysis, load, run
from crawlproject.imaging.decoders import Decoders
from crawlproject.imaging.failures import AnalysesNotLoaded, NoDecoder, UnreadableImage
from crawlproject.imaging.messages import MOST_BYTES
from crawlproject.models import Analysis
from tests.imaging.analysing import PLUGINS, picture
from tests.imaging.test_decoders import Make, make

TRAPS = Path(__file__).parents[1] / "traps"
__all__ = ["make"]


PICTURE = picture(size=(900, 600))


@pytest.fixture(autouse=True)
def traps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TRAPS))


def looked(*names: str, image: Image.Image | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    return run(load(f"hostile_analyses:{name}" for name in names), image or Image.new("RGB", (30, 20), "blue"))


def test_each_gets_a_copy_of_the_picture_in_rgb() -> None:
    results, errors = looked("size", "spoils", "corner", "mode", image=Image.new("L", (30, 20), 7))
    assert results == {"size": [30, 20], "spoils": "spoilt", "corner": [7, 7, 7], "mode": "RGB"}
    assert errors == {}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("raises", "ValueError: no model"),
        ("leaves", "SystemExit: bye"),
        ("huge", f"ValueError: 4097 bytes of JSON, more than {MOST_BYTES}"),
        ("set_of", "TypeError: Object of type set is not JSON serializable"),
        ("nan", "ValueError: Out of range float values are not JSON compliant"),
        ("surrogate", "UnicodeEncodeError: "),
        ("deep", ""),
    ],
)
def test_what_is_raised_or_is_no_small_json_is_an_error(name: str, error: str) -> None:
    results, errors = looked("size", name, "corner")
    assert results == {"size": [30, 20], "corner": [0, 0, 255]}
    assert list(errors) == [name]
    assert errors[name].replace("?", " ").startswith(error)
    assert errors[name].isprintable()
    assert len(errors[name]) <= 200


def test_a_result_may_have_so_many_bytes() -> None:
    results, errors = looked("largest")
    assert (len(results["largest"]) + 2, errors) == (MOST_BYTES, {})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_module:f", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        (
            "hostile_analyses:no_such",
            "cannot be loaded: AttributeError: module 'hostile_analyses' has no attribute ",
        ),
        ("hostile_analyses:number", "is not a function: int"),
    ],
)
def test_what_cannot_be_loaded_is_named(name: str, why: str) -> None:
    with pytest.raises(BadAnalysis) as caught:
        load(["hostile_analyses:size", name])
    assert str(caught.value).startswith(f"{name} {why}")


def having(make: Make, *names: str, **job: Any) -> Decoders:
    """Return decoders with these analyses."""
    return make(analyses=tuple(f"hostile_analyses:{name}" for name in names), **{"timeout": 60, **job})


def is_whole(made: Analysis, size: tuple[int, int] = (900, 600)) -> bool:
    return (made.facts.width, made.facts.height) == size and len(made.thumbnails) == 1


async def test_results_come_with_the_picture_as_its_largest_thumbnail_shows_it(make: Make) -> None:
    tags = Image.Exif()
    tags[0x112] = 6
    made = await having(make, "size", "mode", sizes=(100, 300)).analyse(picture(size=(900, 600), exif=tags))
    assert made.results == {"size": [200, 300], "mode": "RGB"}
    assert made.errors == {}


async def test_what_has_no_pixels_is_not_analysed(make: Make) -> None:
    made = await having(make, "size", formats=("DRAWN",), plugins=PLUGINS).analyse(b"drawn")
    assert (made.facts.width, made.thumbnails, made.results, made.errors) == (30, (), {}, {})


@pytest.mark.parametrize(
    ("name", "timeout", "error"),
    [
        ("crashes", 60, "left out: crashed the decoder (killed by SIGSEGV)"),
        ("ends", 60, "left out: crashed the decoder (exit code 3)"),
        ("babbles", 60, "left out: crashed the decoder (sent "),
        ("hangs", 5, "left out: took longer to decode than CRAWL_DECODE_TIMEOUT (5 s)"),
    ],
)
async def test_an_analysis_that_takes_its_process_along_costs_no_picture(
    make: Make, name: str, timeout: int, error: str
) -> None:
    made = await having(make, "size", name, timeout=timeout).analyse(PICTURE)
    assert is_whole(made)
    assert made.results == {}
    assert list(made.errors) == ["size", name]
    assert all(each.startswith(error) for each in made.errors.values())


async def test_an_analysis_that_eats_memory_costs_no_picture(make: Make) -> None:
    decoders = having(make, "size", "eats")
    for size in ((900, 600), (800, 600)):
        made = await decoders.analyse(picture(size=size))
        assert is_whole(made, size)
        assert "eats" in made.errors


async def test_what_an_analysis_sets_in_pillow_holds_for_no_picture(make: Make) -> None:
    one = make(analyses=("careless_analyses:size",), timeout=60)
    made = await one.analyse(PICTURE)
    assert is_whole(made)
    assert made.results == {"size": [640, 427]}
    with pytest.raises(UnreadableImage):
        await one.analyse(PICTURE[:-2000])


async def test_an_analysis_can_open_nothing(make: Make) -> None:
    decoders = having(make, "size", "opens")
    made = await decoders.analyse(PICTURE)
    assert is_whole(made)
    if not (await asyncio.to_thread(Path("/proc/sys/kernel/seccomp/actions_avail").exists)):
        pytest.skip("no seccomp here")
    assert made.results == {"size": [640, 427]}
    assert made.errors["opens"].startswith("PermissionError")


async def test_a_decoder_whose_analyses_cannot_be_loaded_says_so(make: Make) -> None:
    with pytest.raises(AnalysesNotLoaded, match=r"hostile_analyses:number is not a function: int") as caught:
        await having(make, "number").analyse(PICTURE)
    assert isinstance(caught.value, NoDecoder)
