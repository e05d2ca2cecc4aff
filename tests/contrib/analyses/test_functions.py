"""The analyses that come with crawlproject."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from blurhash_rs import blurhash_decode
from PIL import Image, ImageFilter

from crawlproject.contrib.analyses import functions as analyses


def drawn(number: int, size: tuple[int, int] = (640, 427)) -> Image.Image:
    """Return a picture of rectangles; the same for each number."""
    dice = random.Random(number)
    image = Image.new("RGB", size, "grey")
    for _ in range(40):
        width, height = dice.randrange(20, size[0] // 2), dice.randrange(20, size[1] // 2)
        left, upper = dice.randrange(-20, size[0]), dice.randrange(-20, size[1])
        image.paste(
            (dice.randrange(256), dice.randrange(256), dice.randrange(256)),
            (left, upper, left + width, upper + height),
        )
    return image


# By imagehash 4.3.2, with SciPy.
IMAGEHASHES = {
    0: ("92f072322ebac1c8", "9d9cc2e1f58a1d1a"),
    1: ("9c9432369a5cb6bf", "b053b033339c77c9"),
    2: ("606160610bcb8b80", "cb9fd5687c80a570"),
    3: ("0c5ab33c38b0343e", "996724d937b660c9"),
}


@pytest.mark.parametrize("number", IMAGEHASHES)
def test_the_hashes_are_those_of_imagehash(number: int) -> None:
    image = drawn(number)
    assert (analyses.dhash(image), analyses.phash(image)) == IMAGEHASHES[number]


def distance(one: str, other: str) -> int:
    return (int(one, 16) ^ int(other, 16)).bit_count()


@pytest.mark.parametrize("function", [analyses.dhash, analyses.phash])
def test_near_copies_have_near_hashes_and_others_have_not(function: Callable[[Image.Image], str]) -> None:
    image = drawn(1)
    near = image.resize((300, 200)).filter(ImageFilter.GaussianBlur(1))
    assert distance(function(image), function(near)) <= 6
    assert distance(function(image), function(drawn(2))) >= 16


def test_colours_are_the_most_frequent_first_with_their_shares() -> None:
    image = Image.new("RGB", (400, 200), "#0000ff")
    image.paste("#ff0000", (0, 0, 100, 200))
    (first, most), (second, least) = analyses.colours(image)
    assert (most, least) == (0.75, 0.25)
    assert [[round(part / 51) for part in bytes.fromhex(colour[1:])] for colour in (first, second)] == [
        [0, 0, 5],
        [5, 0, 0],
    ]
    shares = [share for _, share in analyses.colours(drawn(3))]
    assert len(shares) <= 5
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1, abs=0.01)


def test_a_blurhash_looks_like_the_picture() -> None:
    image = Image.new("RGB", (640, 400), "red")
    image.paste("blue", (320, 0, 640, 400))
    text = analyses.blurhash(image)
    assert len(text) == 28
    again = blurhash_decode(text, 32, 20)
    left, right = again.getpixel((3, 10)), again.getpixel((28, 10))
    assert isinstance(left, tuple)
    assert isinstance(right, tuple)
    assert left[0] > 2 * left[2]
    assert right[2] > 2 * right[0]


def test_without_the_extra_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(analyses, "blurhash")
    with pytest.raises(ImportError, match="blurhash needs the extra `analyses`: pip install blurhash-rs"):
        _ = analyses.blurhash
