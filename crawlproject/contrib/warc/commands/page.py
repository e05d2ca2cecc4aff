"""`scrapy page`: a stored page, as it came."""

from __future__ import annotations

import argparse
import json
import re
import sys
from email import message_from_bytes

from scrapy.exceptions import UsageError
from w3lib.encoding import html_to_unicode

from crawlproject import cli
from crawlproject.sources.domains import with_canonical_host


class Command(cli.Command):
    """Print the body of a stored page, as it was last or at a TIME, from CRAWL_PAGES_STORE, or from the FOLDER or
    bucket given. Where the site has sent it unchanged, that is the body of before. On a terminal, control
    characters become ?; elsewhere all bytes are as stored.
    """

    arguments = "[options] URL [FOLDER|s3://BUCKET/PREFIX/]"
    summary = "Print or save a stored page"
    examples = (
        "scrapy page https://example.org/",
        "scrapy page --at 2026-11-22 -o home.html https://example.org/",
    )
    json_help = "print where it is and when it was stored, as one JSON document"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("-o", "--output", metavar="FILE", help="write it to a file")
        parser.add_argument(
            "--headers", action="store_true", help="the head of the response, in place of the body"
        )
        parser.add_argument("--at", metavar="TIME", help="as last stored until then, as in 2026-11-22T10:30 (UTC)")

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawlproject.contrib.warc import stored_pages
        from crawlproject.contrib.warc.index import REVISIT, Index

        until = re.sub(r"\.\d+|[-T: ]|Z$|\+00:00$", "", opts.at or "9999")
        if not args or not re.fullmatch(r"\d{4,14}", until):
            raise UsageError("expected a URL" if not args else f"--at {opts.at!r:.80}: expected a time in UTC")
        url = with_canonical_host(args[0] if "://" in args[0] else f"http://{args[0]}")
        with stored_pages.opened_store(args[1:], self.settings) as store:
            index = Index(store)
            found = stored_pages.versions(index, url)
            until = until.ljust(14, "9")
            entry = next((one for one in reversed(found) if one["time"] <= until), found[0])
            record = stored_pages.read(index, entry)
            whole = entry, record
            if entry["mime"] == REVISIT and not opts.headers:
                whole = stored_pages.original(index, record)
        if entry["url"] != url or entry["time"] > until:
            cli.remark(f"this is {entry['url']}, stored at {entry['time']}")
        if opts.json:
            print(json.dumps({**entry, "body": whole[0], "times": [one["time"] for one in found]}))
            return
        data = record.head if opts.headers else whole[1].body
        if opts.output:
            cli.save(opts.output, data, "--output")
        elif sys.stdout.isatty():
            content_type = message_from_bytes(whole[1].head.partition(b"\n")[2])["Content-Type"]
            cli.show(html_to_unicode(content_type and str(content_type), data)[1])
        else:
            sys.stdout.buffer.write(data)
