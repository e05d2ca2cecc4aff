"""`python -m demo` crawls images (`make demo`), on a Redis Cluster with `cluster`; with `pages` pages."""

from __future__ import annotations

import argparse
import sys

from demo import cluster, images, pages


def main() -> int:
    """Run one of the demos; return 1 when its outcome is not the expected one."""
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="Watch the crawler at work on this machine."
    )
    parser.add_argument(
        "crawl",
        nargs="?",
        choices=("images", "pages", "cluster"),
        default="images",
        help="listed `images` of four sites, the default; the same on a Redis `cluster`; "
        "or `pages` of three sites, and the images on them",
    )
    demos = {"images": images.main, "pages": pages.main, "cluster": cluster.main}
    return demos[parser.parse_args().crawl]()


if __name__ == "__main__":
    sys.exit(main())
