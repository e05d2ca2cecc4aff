"""`python -m demo` crawls images (`make demo`), `python -m demo pages` pages, on which it finds images."""

from __future__ import annotations

import argparse
import sys

from demo import images, pages


def main() -> int:
    """Run one of the demos; return 1 when its outcome is not the expected one."""
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="Watch the crawler at work on this machine."
    )
    parser.add_argument(
        "crawl",
        nargs="?",
        choices=("images", "pages"),
        default="images",
        help="listed `images` of four sites, the default; or `pages` of three sites, and the images on them",
    )
    return pages.main() if parser.parse_args().crawl == "pages" else images.main()


if __name__ == "__main__":
    sys.exit(main())
