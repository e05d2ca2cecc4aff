"""Events held against ImageMagick: width, height and quality of every picture."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

_THREADS = 2


class Identified(NamedTuple):
    """What `identify` prints of the first frame: size, quality, and the size of the canvas it lies on."""

    width: int
    height: int
    quality: int
    canvas: tuple[int, int]


def identify(picture: Path) -> Identified | None:
    """Return what ImageMagick sees in a file; None when it sees nothing."""
    done = subprocess.run(
        ["identify", "-format", "%w %h %Q %W %H\n", f"{picture.resolve()}[0]"],
        capture_output=True,
        text=True,
        check=False,
    )
    words = done.stdout.split()
    if len(words) != 5:
        return None
    width, height, quality, canvas_width, canvas_height = map(int, words)
    return Identified(width, height, quality, (canvas_width, canvas_height))


def compare(events: Sequence[Mapping[str, Any]], files: Mapping[str, Path]) -> list[str]:
    """Print on how many pictures we agree; return each disagreement with its reason.

    `files` are the pictures by identifier. Quality is compared where an event has one: of what is no JPEG
    ImageMagick says 92, for "no idea", or how hard a PNG was compressed.
    """
    if shutil.which("identify") is None:
        sys.exit("--identify needs ImageMagick: apt-get install imagemagick")
    with ThreadPoolExecutor(_THREADS) as threads:
        found = list(threads.map(identify, (files[event["identifier"]] for event in events)))
    differing = []
    for event, seen in zip(events, found, strict=True):
        reason = _difference(event, seen)
        if reason:
            differing.append(f"{event['identifier']} ({files[event['identifier']].name}): {reason}")
    of_quality = sum(event["compression_quality"] is not None for event in events)
    print(
        f"identify agrees on {len(events) - len(differing)} of {len(events)} pictures: width and height of all, "
        f"quality of the {of_quality} JPEGs among them"
    )
    return differing


def _difference(event: Mapping[str, Any], seen: Identified | None) -> str | None:
    ours = (event["width"], event["height"])
    if seen is None:
        return f"ImageMagick cannot read it; we say {ours[0]} x {ours[1]}"
    if ours != (seen.width, seen.height):
        why = ": ours is the canvas, its first frame is smaller" if ours == seen.canvas else ""
        return f"{ours[0]} x {ours[1]}, identify says {seen.width} x {seen.height}{why}"
    quality = event["compression_quality"]
    if quality is not None and quality != seen.quality:
        return f"quality {quality}, identify says {seen.quality}"
    return None
