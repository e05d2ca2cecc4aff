"""`scrapy index`: one index of all WARC files of a store."""

from __future__ import annotations

import argparse
import json

from crawlproject import cli
from crawlproject.errors import CrawlprojectError
from crawlproject.texts import counted


class Command(cli.Command):
    """Merge the indices of the WARC files in CRAWL_PAGES_STORE, or in the FOLDER or bucket given, into one sorted
    file beside them: index.cdxj, for `scrapy page`, pywb and other readers. Files without an index get one. Run it
    again when there are more files. The disk of the folder, or TMPDIR for a bucket, needs room for two copies.
    """

    arguments = "[options] [FOLDER|s3://BUCKET/PREFIX/]"
    summary = "Merge the indices of stored pages into one, for pywb and others"
    examples = ("scrapy index", "scrapy index s3://bucket/pages/")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawlproject.contrib.warc.index import MERGED, merge_indices
        from crawlproject.contrib.warc.stored_pages import opened_store

        with opened_store(args, self.settings) as store:
            said = merge_indices(store, cli.remark)
        if not said["files"]:
            raise CrawlprojectError(f"no closed WARC files of pages are in {store.place}")
        files = counted(said["files"], "file")
        words = f"{store.place}: {files} in {MERGED}, {said['indexed']} of them indexed now"
        cli.show(json.dumps(said) if opts.json else words)
