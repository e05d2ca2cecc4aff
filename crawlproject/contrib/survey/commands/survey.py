"""`scrapy survey`: what a whole crawl has come to."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from scrapy.exceptions import UsageError

from crawlproject import cli
from crawlproject.errors import CrawlprojectError
from crawlproject.screen import stdout_console, table
from crawlproject.texts import counted, missing

_LEAST_MB = 200  # of memory


class Command(cli.Command):
    """Survey a whole crawl, from files and folders that scrapy events has written: pages and images alive, gone,
    forbidden or failed, by status and source; content types, sizes, depth, languages, links, and reasons. Each URL
    counts once, by its last event. Prints tables, and with --html writes a page with plots.
    """

    arguments = "[options] FILE|FOLDER..."
    summary = "Survey a whole crawl: URLs alive and gone, kinds of content, refusals"
    examples = (
        "scrapy survey results.jsonl --html survey.html",
        "scrapy stats --spider pages | scrapy survey results.jsonl out/ --stats -",
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--html", metavar="FILE", help="write it as a page of HTML; -: to stdout")
        parser.add_argument(
            "--stats",
            metavar="FILE",
            help="output of scrapy stats --spider pages, which counts traps and budgets; -: from stdin",
        )
        parser.add_argument("--top", type=int, default=20, metavar="N", help="rows of a table (default: 20)")
        parser.add_argument(
            "--memory",
            type=int,
            default=1000,
            metavar="MB",
            help="megabytes of memory for DuckDB; the rest goes to disk (default: 1000)",
        )

    @cli.reports_errors
    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if not args:
            raise UsageError("expected at least one FILE or FOLDER")
        if opts.json and opts.html == "-":
            raise UsageError("--json and --html - both write to stdout: give a FILE")
        if not 1 <= opts.top <= 10_000:
            raise UsageError(f"--top {opts.top}: expected 1 to 10000")
        if opts.memory < _LEAST_MB:
            raise UsageError(f"--memory {opts.memory}: expected at least {_LEAST_MB} (MB)")
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the temporary folder is removed
        made = _survey(args, opts.top, opts.memory, _stats(opts.stats))
        if opts.html:
            from crawlproject.contrib.survey.page import page

            cli.save(opts.html, page(made), "--html")
        if opts.json:
            print(json.dumps(made, indent=2))
        elif opts.html != "-":
            _show(made)
        from crawlproject.contrib.survey.figures import gaps

        for gap in gaps(made):
            cli.remark(gap)


def _survey(places: list[str], top: int, memory: int, stats: dict[str, Any] | None) -> dict[str, Any]:
    try:
        import duckdb  # noqa: F401
    except ImportError as error:
        raise CrawlprojectError(missing("a survey", "duckdb", error, "survey")) from None
    from crawlproject.contrib.survey.events import files_of, opened
    from crawlproject.contrib.survey.figures import survey

    files = files_of(places)
    with opened(files, memory) as database:
        made = survey(database, top, stats)
    if not made["urls"]:
        raise CrawlprojectError(
            f"no events of pages or images in {', '.join(places)} ({counted(len(files), 'file')}): name files and "
            "folders that scrapy events has written"
        )
    return made


def _stats(place: str | None) -> dict[str, Any] | None:
    """Return what `scrapy stats` has printed."""
    if place is None:
        return None
    try:
        found = json.loads(sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--stats {place}: {error}", print_help=False) from None
    if not isinstance(found, dict) or "links_admitted" not in found:
        raise UsageError(f"--stats {place}: expected the output of scrapy stats --spider pages", print_help=False)
    return found


def _show(made: dict[str, Any]) -> None:
    """Print the tables, by rich's `Text`, which reads no markup; `shown` has made them printable."""
    from rich.text import Text

    from crawlproject.contrib.survey.figures import TABLES, shown, summary, text_columns, words

    console = stdout_console()
    console.print(Text("{events:,} events of {urls:,} URLs, {first} to {last}".format(**made)))
    for subject, tables in TABLES.items():
        found = made[subject]
        if found["totals"]["urls"]:
            console.print(Text(f"\n{subject}: {summary(found['totals'])}", "bold"))
        for key, (title, _) in tables.items():
            if rows := found.get(key):
                heads, texts = list(map(words, rows[0])), set(map(words, text_columns(rows)))
                console.print(Text(f"\n{title} ({subject})", "italic"))
                console.print(table([dict(zip(heads, cells, strict=True)) for cells in shown(key, rows)], texts))
    for name, count in (made["links"] or {}).items():
        console.print(Text(f"{words(name)}: {count:,}"))
