"""Analyses as bad as can be, for `CRAWL_ANALYSES`; and a good one."""

import ctypes
import os
import sys
import time
from typing import Any

from PIL import Image

kept: list[bytearray] = []


def size(image: Image.Image) -> list[int]:
    return list(image.size)


def mode(image: Image.Image) -> str:
    return image.mode


def spoils(image: Image.Image) -> str:
    image.paste("red", (0, 0, *image.size))
    return "spoilt"


def corner(image: Image.Image) -> Any:
    return image.getpixel((0, 0))


def raises(image: Image.Image) -> None:
    raise ValueError("no\nmodel")


def leaves(image: Image.Image) -> None:
    sys.exit("bye")


def hangs(image: Image.Image) -> None:
    while True:
        time.sleep(1)


def crashes(image: Image.Image) -> None:
    ctypes.string_at(0)


def ends(image: Image.Image) -> None:
    os._exit(3)


def babbles(image: Image.Image) -> None:
    os.write(0, b"a" * 1000)


def eats(image: Image.Image) -> None:
    while True:
        kept.append(bytearray(16 << 20))


def huge(image: Image.Image) -> str:
    return "x" * 4095


def largest(image: Image.Image) -> str:
    return "x" * 4094


def set_of(image: Image.Image) -> Any:
    return {1, 2}


def nan(image: Image.Image) -> float:
    return float("nan")


def surrogate(image: Image.Image) -> str:
    return "\ud800"


def deep(image: Image.Image) -> Any:
    value: Any = []
    for _ in range(900):
        value = [value]
    return value


def opens(image: Image.Image) -> str:
    with open("/etc/hostname") as file:  # noqa: PTH123
        return file.read()


number = 5
