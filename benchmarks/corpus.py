"""Real pictures to crawl, out of Debian packages: wallpapers, clip art, screenshots, photographs of manuals.

Needs a Debian or Ubuntu with its package lists (`apt-get update`), not root. About 650 MB are downloaded once and
kept in the folder, with what was unpacked.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

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

SMALLEST = 16 * 1024  # bytes; below are icons, which nobody crawls for
LARGEST = 20 * 1024 * 1024  # bytes
MOST_PIXELS = 100_000_000  # img2dataset takes 13 GB for a PNG of 168 million with alpha
EACH = 200  # pictures at most of one kind out of one package, so that no collection outweighs the others


def pictures(folder: Path = FOLDER) -> list[Path]:
    """Return the pictures, downloaded and unpacked if need be: always the same ones in the same order.

    Raises:
        SystemExit: this is no Debian, or a package cannot be had; the message says what to do.

    """
    for package in PACKAGES:
        _unpack(folder, package)
    groups: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((folder / "unpacked" / package).rglob("*")):
            kind = KINDS.get(path.suffix.lower())
            if kind and path.is_file() and not path.is_symlink() and SMALLEST <= path.stat().st_size <= LARGEST:
                groups[package, kind].append(path)
    rng = random.Random(0)
    chosen = [path for group in groups.values() for path in rng.sample(group, min(EACH, len(group)))]
    rng.shuffle(chosen)
    return [path for path in chosen if _pixels(path) <= MOST_PIXELS]


def _pixels(path: Path) -> int:
    try:
        with Image.open(path) as image:
            return image.width * image.height
    except OSError:
        return 0


def pages(folder: Path = FOLDER) -> dict[str, list[Path]]:
    """Return each manual's HTML pages, downloaded and unpacked if need be, by the name of its package.

    Raises:
        SystemExit: as for `pictures`.

    """
    for package in PAGES:
        _unpack(folder, package)
    found = {package: sorted((folder / "unpacked" / package).rglob("*.html")) for package in PAGES}
    return {package: [path for path in paths if path.is_file()] for package, paths in found.items()}


def kind_of(path: Path) -> str:
    """Return the kind of a picture by its name: "jpeg", "png", "gif", "webp", "tiff" or "bmp"."""
    return KINDS[path.suffix.lower()]


def _unpack(folder: Path, package: str) -> None:
    unpacked = folder / "unpacked" / package
    if unpacked.exists():
        return
    archive = _download(folder / "packages", package)
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
