"""Three small museums to try the examples on: makes pictures, lists of them, and serves them on this machine.

    python examples/gallery.py museums/        # until Ctrl-C

Their sites are http://127.0.0.1:8000, http://127.0.0.2:8000 and http://127.0.0.3:8000. The folder then also holds
`images.csv` and `images.parquet` (the latter if pyarrow is installed), with the columns that LAION has in its
lists, and `sources.json`, the catalogue of the three. Some pictures of the lists are missing on the sites.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from PIL import Image

MUSEUMS = {"citymuseum": "127.0.0.1", "naturemuseum": "127.0.0.2", "villagemuseum": "127.0.0.3"}
MISSING = {"citymuseum": 20, "naturemuseum": 10, "villagemuseum": 5}  # every so many
COLUMNS = ["URL", "TEXT", "WIDTH", "HEIGHT", "similarity", "hash", "key"]


def picture(chosen: random.Random) -> Image.Image:
    """Return a picture with soft shapes."""
    tiny = Image.new("RGB", (6, 4))
    tiny.putdata([(chosen.randrange(256), chosen.randrange(256), chosen.randrange(256)) for _ in range(24)])
    wide = chosen.randrange(90, 1800)
    return tiny.resize((wide, round(wide * chosen.uniform(0.6, 1.6))), Image.Resampling.BICUBIC)


def make(folder: Path, count: int, port: int) -> None:
    """Write `count` pictures for each museum, the lists of all, and the catalogue."""
    rows: list[dict[str, object]] = []
    for name, host in MUSEUMS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            key, chosen = f"{name}-{number}", random.Random(f"{name}-{number}")
            image = picture(chosen)
            if number % MISSING[name]:
                image.save(folder / name / f"{number}.jpg", quality=chosen.choice((60, 75, 85, 92)))
            url, text = f"http://{host}:{port}/{name}/{number}.jpg", f"No. {number} of the {name}"
            rows.append(dict(zip(COLUMNS, (url, text, *image.size, 0.31, key, key), strict=True)))
        links = "".join(f'<p><a href="{n}.jpg"><img src="{n}.jpg" alt="No. {n}"></a></p>\n' for n in range(count))
        (folder / name / "index.html").write_text(
            f"<!doctype html><title>{name}</title>\n{links}", encoding="utf-8"
        )
    with (folder / "images.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    catalogue = [
        {"source_name": name, "image_count": 12_000_000, "hosts": [host]} for name, host in MUSEUMS.items()
    ]
    (folder / "sources.json").write_text(json.dumps(catalogue, indent=1) + "\n", encoding="utf-8")
    try:
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        print("without images.parquet: pip install pyarrow")
    else:
        pyarrow.parquet.write_table(pyarrow.csv.read_csv(folder / "images.csv"), folder / "images.parquet")


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs no request."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing."""


def main() -> None:
    """Make the museums, and serve them until Ctrl-C."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("folder", type=Path, help="for the pictures and lists; may be there already")
    options.add_argument("--count", type=int, default=40, help="pictures of each museum (40)")
    options.add_argument("--port", type=int, default=8000, help="of each museum's site (8000)")
    given = options.parse_args()
    make(given.folder, given.count, given.port)
    handler = partial(Quiet, directory=str(given.folder))
    try:
        servers = [ThreadingHTTPServer((host, given.port), handler) for host in MUSEUMS.values()]
    except OSError as error:
        sys.exit(f"port {given.port} cannot be served ({error}): choose another with --port")
    for server in servers[1:]:
        Thread(target=server.serve_forever, daemon=True).start()
    print(
        f"{given.folder}/images.parquet and .csv: {len(MUSEUMS) * given.count} images; the sites run until Ctrl-C",
        flush=True,
    )
    with suppress(KeyboardInterrupt):
        servers[0].serve_forever()


if __name__ == "__main__":
    main()
