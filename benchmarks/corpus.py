"""Real pictures to crawl, out of Debian packages: wallpapers, clip art, screenshots, photographs of manuals.

Needs a Debian or Ubuntu with its package lists (`apt-get update`), not root. About 650 MB are downloaded once and
kept in `FOLDER`, with what was unpacked and made of it.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

FOLDER = Path(".crawl/benchmarks")
Image.MAX_IMAGE_PIXELS = None

PACKAGES = (
    "gnome-backgrounds",  # large WebP
    "plasma-workspace-wallpapers",  # large JPEG and PNG
    "mate-backgrounds",
    "ukui-wallpapers",
    "lomiri-wallpapers-16.04",
    "lomiri-wallpapers-20.04",
    "gimp-help-en",  # screenshots and photographs
    "opencv-doc",  # photographs, JPEG of many qualities
    "kphotoalbum",  # photographs with EXIF
    "endless-sky-high-dpi",  # landscape photographs of one megapixel
    "hugin-data",
    "imagemagick-6-doc",  # GIF
    "openclipart-png",  # clip art, with transparency
)
PAGES = (  # manuals of many makers: hand-written, DocBook, Sphinx, Doxygen
    "python3.11-doc",
    "postgresql-doc-15",
    "sqlite3-doc",
    "apache2-doc",
    "python-django-doc",
    "git-doc",
    "maint-guide",
    "debian-reference-en",
)
KINDS = {".jpg": "jpeg", ".jpeg": "jpeg", ".tif": "tiff"} | {
    f".{kind}": kind for kind in ("png", "gif", "webp", "tiff", "bmp")
}

Way = tuple[str, dict[str, Any]]  # how a picture is written: its suffix, and what Pillow's `save` takes

SMALLEST = 16 * 1024  # bytes; below are icons, which nobody crawls for
LARGEST = 20 * 1024 * 1024  # bytes
MOST_PIXELS = 100_000_000  # img2dataset takes 13 GB for a PNG of 168 million with alpha
_WEB = range(20 << 10, 120 << 10)  # bytes of small pictures of sites
EACH = 200  # pictures at most of one kind out of one package, so that no collection outweighs the others


def pictures(which: str = "all") -> list[Path]:
    """Return one of the `CORPORA`, downloaded and made if need be: always the same pictures in the same order.

    Raises:
        SystemExit: this is no Debian, or a package cannot be had; the message says what to do.

    """
    for package in PACKAGES:
        _unpack(package)
    chosen = CORPORA[which]()
    random.Random(0).shuffle(chosen)
    return chosen


def _all() -> list[Path]:
    """Return pictures as they are in the packages."""
    groups: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for package in PACKAGES:
        for path in _within(package):
            if SMALLEST <= path.stat().st_size <= LARGEST:
                groups[package, kind_of(path)].append(path)
    rng = random.Random(0)
    chosen = [path for group in groups.values() for path in rng.sample(group, min(EACH, len(group)))]
    return [path for path in chosen if _pixels(path) <= MOST_PIXELS]


def _jpeg() -> list[Path]:
    """Return photographs of 0.5 to 4 megapixels; one in twenty is progressive, one in five has all its chroma."""
    ways: list[Way] = [("jpeg", {"subsampling": 0} if number % 5 == 0 else {}) for number in range(20)]
    ways[1] = "jpeg", {"progressive": True}
    return _made("jpeg", 1000, ways, range(500_000, 4_000_000), range(75, 96))


def _web() -> list[Path]:
    """Return small pictures of sites: JPEG, WebP and GIF made of photographs, PNG as they are in the packages."""
    ways: list[Way] = [(kind, {}) for kind in ("gif", "webp", "webp", *["jpeg"] * 12)]
    made = _made("web", 1500, ways, range(60_000, 720_000), range(60, 91))
    found = [*made, *(path for package in PACKAGES for path in _within(package) if kind_of(path) == "png")]
    small = [path for path in found if path.stat().st_size in _WEB]
    count = sum(path.stat().st_size in _WEB for path in made)
    return small[:count] + random.Random(0).sample(small[count:], count // 3)


CORPORA = {"all": _all, "jpeg": _jpeg, "web": _web}


def _made(name: str, count: int, ways: Sequence[Way], pixels: range, qualities: range) -> list[Path]:
    """Return parts of photographs, of so many pixels and of usual shapes, written in each way in turn."""
    folder = FOLDER / "made" / name
    if not folder.exists():
        part = folder.with_name(f"{name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        large = [path for package in PACKAGES for path in _within(package) if kind_of(path) == "jpeg"]
        large = [path for path in large if _pixels(path) > 4_000_000]
        for place, path in enumerate(large):
            with Image.open(path) as image:
                whole = image.convert("RGB")
            for number in range(place, count, len(large)):
                kind, settings = ways[number % len(ways)]
                rng = random.Random(number)
                cut = _cut(whole, rng, pixels.start * (pixels.stop / pixels.start) ** rng.random())
                cut.save(part / f"{number:04d}.{kind}", quality=rng.choice(qualities), **settings)
        part.rename(folder)
    return sorted(folder.iterdir())


def _cut(whole: Image.Image, rng: random.Random, pixels: float) -> Image.Image:
    shape = rng.choice((4 / 3, 3 / 2, 16 / 9, 1, 3 / 4, 2 / 3))
    width, height = round((pixels * shape) ** 0.5), round((pixels / shape) ** 0.5)
    most = min(whole.width / width, whole.height / height)
    scale = rng.uniform(min(1, most), most)
    across, down = int(width * scale), int(height * scale)
    left, upper = rng.randint(0, whole.width - across), rng.randint(0, whole.height - down)
    return whole.resize((width, height), Image.Resampling.LANCZOS, (left, upper, left + across, upper + down))


def _within(package: str) -> list[Path]:
    """Return the pictures of a package."""
    found = sorted((FOLDER / "unpacked" / package).rglob("*"))
    return [path for path in found if path.suffix.lower() in KINDS and path.is_file() and not path.is_symlink()]


def _pixels(path: Path) -> int:
    try:
        with Image.open(path) as image:
            return image.width * image.height
    except OSError:
        return 0


def pages() -> dict[str, list[Path]]:
    """Return each manual's HTML pages, downloaded and unpacked if need be, by the name of its package.

    Raises:
        SystemExit: as for `pictures`.

    """
    for package in PAGES:
        _unpack(package)
    found = {package: sorted((FOLDER / "unpacked" / package).rglob("*.html")) for package in PAGES}
    return {package: [path for path in paths if path.is_file()] for package, paths in found.items()}


def kind_of(path: Path) -> str:
    """Return the kind of a picture by its name: "jpeg", "png", "gif", "webp", "tiff" or "bmp"."""
    return KINDS[path.suffix.lower()]


def _unpack(package: str) -> None:
    unpacked = FOLDER / "unpacked" / package
    if unpacked.exists():
        return
    archive = _download(FOLDER / "packages", package)
    part = unpacked.with_name(f"{package}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    subprocess.run(["dpkg", "-x", str(archive), str(part)], check=True)
    part.rename(unpacked)


def _download(folder: Path, package: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    present = sorted(folder.glob(f"{package}_*.deb"))
    if present:
        return present[-1]
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        sys.exit(
            "The benchmarks take their pictures from Debian packages, and there is no apt-get and dpkg here: "
            f"run them on Debian or Ubuntu (a container will do), or copy {folder.parent} from one."
        )
    print(f"Downloading {package} ...", file=sys.stderr)
    done = subprocess.run(
        ["apt-get", "download", package], cwd=folder, capture_output=True, text=True, check=False
    )
    present = sorted(folder.glob(f"{package}_*.deb"))
    if done.returncode or not present:
        sys.exit(f"apt-get download {package} failed; try apt-get update first.\n{done.stderr.strip()}")
    return present[-1]
