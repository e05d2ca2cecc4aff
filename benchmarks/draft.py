"""How large a JPEG should be decoded for its thumbnail: what scales of decoding cost, and how good they are.

    python -m benchmarks.draft [--folder DIR] [--images N]

Makes thumbnails of the corpus' JPEGs over 640 pixels with `_DRAFT` of `imaging/thumbnail.py` at each scale, in
turn for each picture. Prints the mean CPU time of opening, decoding, scaling and encoding one, and PSNR and SSIM
against a full decode with Lanczos: of all, and of those that are decoded at another size at one scale than at
another.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from pathlib import Path
from statistics import mean, quantiles
from typing import NamedTuple

from PIL import Image

from benchmarks.corpus import FOLDER, pictures
from benchmarks.thumbnails import Quality, comparable, longest_side, quality
from crawlproject.imaging import thumbnail

SCALES = (1.25, 1.5, 2.0)
ROUNDS = 3  # the fastest counts


class Result(NamedTuple):
    """A thumbnail: what it took, the size that the picture was decoded at, how good it is."""

    seconds: float
    size: tuple[int, int]
    quality: Quality


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--images", type=int, default=300)
    options = parser.parse_args()
    photos = [path for path in pictures(options.folder) if path.suffix.lower() in {".jpg", ".jpeg"}]
    photos = [path for path in photos if longest_side(path) > 640 and comparable(path)]
    photos = photos[:: max(1, len(photos) // options.images)][: options.images]
    results: list[list[Result]] = []
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "thumbnail.jpg"
        for photo in photos:
            row = []
            for scale in SCALES:
                seconds, body, size = _thumbnail(photo.read_bytes(), scale)
                made.write_bytes(body)
                row.append(Result(seconds, size, quality(made, photo)))
            results.append(row)
    _print("all", results)
    _print("decoded at different sizes", [row for row in results if len({one.size for one in row}) > 1])


def _print(which: str, results: list[list[Result]]) -> None:
    print(f"{len(results)} JPEGs, {which}\n\n| scale | CPU ms | PSNR p50, p5 | SSIM p50, p5 |\n|---|---|---|---|")
    for scale, column in zip(SCALES, zip(*results, strict=True), strict=True):
        psnr, ssim = (_p50_p5([getattr(one.quality, name) for one in column]) for name in Quality._fields)
        cost = mean(one.seconds for one in column) * 1000
        print(f"| {scale:g} | {cost:.2f} | {psnr[0]:.2f}, {psnr[1]:.2f} | {ssim[0]:.4f}, {ssim[1]:.4f} |")
    print()


def _thumbnail(body: bytes, scale: float) -> tuple[float, bytes, tuple[int, int]]:
    """Return the CPU seconds that a thumbnail takes, the thumbnail, and the size that the JPEG is decoded at."""
    thumbnail._DRAFT = scale
    seconds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        image = Image.open(io.BytesIO(body))
        how = (640,), "keep_ratio_largest"
        (made,) = thumbnail.thumbnails_of(thumbnail.miniature_of(image, *how), *how, 85, "JPEG")
        seconds.append(time.process_time() - began)
    return min(seconds), made.data, image.size


def _p50_p5(values: list[float]) -> tuple[float, float]:
    cuts = quantiles(values, n=20)
    return cuts[9], cuts[0]


if __name__ == "__main__":
    main()
