"""Events in files, as a table of DuckDB with a row for each URL."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from crawlproject.errors import CrawlprojectError

SUBJECTS = ("pages", "images")  # each a table, of the URLs that a spider has dealt with
OUTCOMES = ("alive", "gone", "forbidden", "failed")

_MB_A_THREAD = 125  # with less, DuckDB's threads have no room for their buffers
_FILES = ("*.parquet", "shard=*/*.parquet", "*.jsonl", "*.jsonl.gz", "*.jsonl.zst")  # in a folder

# What is read: DuckDB's type, and the names that it has in events and in rows of datasets.
_COLUMNS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "event": ("VARCHAR", ("event",)),
    "row": ("VARCHAR", ("status",)),  # of a dataset, in place of `event`
    "spider": ("VARCHAR", ("spider",)),
    "url": ("VARCHAR", ("url",)),
    "final_url": ("VARCHAR", ("final_url",)),
    "seed": ("VARCHAR", ("seed",)),
    "source": ("VARCHAR", ("source",)),
    "status": ("INTEGER", ("http_status", "status")),
    "kind": ("VARCHAR", ("kind",)),
    "reason": ("VARCHAR", ("reason",)),
    "fetched_at": ("TIMESTAMPTZ", ("fetched_at", "time", "at")),
    "discovered_at": ("TIMESTAMPTZ", ("discovered_at",)),
    "found_on": ("VARCHAR", ("found_on",)),
    "content_type": ("VARCHAR", ("content_type",)),
    "size": ("BIGINT", ("size", "filesize")),
    "wire_size": ("BIGINT", ("wire_size",)),
    "language": ("VARCHAR", ("language",)),
    "depth": ("INTEGER", ("depth",)),
    "links": ("INTEGER", ("links",)),
    "images": ("INTEGER", ("images",)),
    "redirects": ("INTEGER", ("redirects",)),
    "statuses": ("INTEGER[]", ("statuses",)),
    "outlinks": ("VARCHAR[]", ("outlinks",)),  # of an array of objects: their `url`
}
# Fields that events of pages do not always have: if no page has one, the survey says so.
OPTIONAL = ("content_type", "size", "wire_size", "statuses", "found_on", "discovered_at", "outlinks")

_HOST_OF = r"""CREATE MACRO host_of(url) AS
    lower(regexp_extract(url, '(?i)^https?://(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:]*)', 1))"""

# Of the events of a URL the last one counts. A 304 says only that what came before still holds; of a page it has
# no size and no links.
_URLS = """CREATE TABLE urls AS
WITH named AS (
    SELECT * REPLACE (
        coalesce(event, CASE "row"
            WHEN 'ok' THEN 'image_metadata_updates' WHEN 'gone' THEN 'link_rot' WHEN 'failed' THEN 'failed'
            WHEN 'probed' THEN 'image_probes' WHEN 'unchanged' THEN 'image_probes' END) AS event,
        coalesce(kind, CASE WHEN reason LIKE 'robots%' THEN 'robots'
            WHEN reason LIKE 'opt-out:%' THEN 'opt_out' END) AS kind,
        list_transform(outlinks, lambda link: host_of(link)) AS outlinks),
        host_of(coalesce(final_url, url)) AS host,
        event = 'pages' AND status = 304 AS is_empty
    FROM ({read})
), told AS (
    SELECT depth, fetched_at, discovered_at, found_on, status, kind, redirects,
        CASE WHEN is_empty THEN NULL ELSE size END AS size,
        CASE WHEN is_empty THEN NULL ELSE wire_size END AS wire_size,
        CASE WHEN is_empty THEN NULL ELSE links END AS links,
        CASE WHEN is_empty THEN NULL ELSE images END AS images,
        hash(coalesce(url, seed, reason)) AS key,
        CASE WHEN event = 'pages' THEN 'pages'
            WHEN event IN ('image_metadata_updates', 'image_probes') THEN 'images'
            WHEN event IN ('link_rot', 'failed') THEN coalesce(spider, 'images')
            WHEN event IS NULL THEN 'unreadable' END AS subject,
        CASE WHEN event = 'link_rot' THEN 'gone' WHEN event <> 'failed' THEN 'alive'
            WHEN kind IN ('robots', 'opt_out') THEN 'forbidden' ELSE 'failed' END AS outcome,
        coalesce(CASE WHEN event = 'failed' AND kind NOT LIKE 'http%' THEN kind END,
            status::VARCHAR, 'other') AS result,
        coalesce(source, 'unknown') AS source,
        regexp_replace(reason, ' \\(after \\d+ attempts\\)$', '') AS reason,
        lower(trim(content_type)) AS content_type,
        lower(regexp_extract(language, '^[A-Za-z]{{2,8}}')) AS language,
        array_to_string(statuses[:20], ', ') AS statuses,
        len(outlinks) AS outlinks,
        list_filter(outlinks, lambda one: one NOT IN ('', host)) AS elsewhere
    FROM named
), short AS (
    SELECT * REPLACE (len(elsewhere) AS elsewhere), list_distinct(elsewhere) AS hosts FROM told
    WHERE subject IN ('pages', 'images', 'unreadable')
)
SELECT *, count(*) OVER (PARTITION BY subject, key) AS times FROM short QUALIFY row_number() OVER (
    PARTITION BY subject, key ORDER BY status IS NOT DISTINCT FROM 304, fetched_at DESC NULLS LAST) = 1
"""


def files_of(places: Sequence[str]) -> list[Path]:
    """Return the files of events in `places`: files, and folders as `scrapy events` writes them.

    Raises:
        CrawlprojectError: there are none.

    """
    found: list[Path] = []
    for place in places:
        path = Path(place)
        if path.is_dir():
            inside = chain.from_iterable(path.glob(pattern) for pattern in _FILES)
            files = sorted(file for file in inside if file.name[:1] not in "._")
            if not files:
                raise CrawlprojectError(
                    f"{place} has no events (*.parquet, *.jsonl): name a file or folder that scrapy events has "
                    "written"
                )
            found += files
        elif path.is_file():
            found.append(path)
        else:
            remedy = "copy it to this machine" if "://" in place else "name one that scrapy events has written"
            raise CrawlprojectError(f"there is no file or folder {place}: {remedy}")
    return found


@contextmanager
def opened(files: Sequence[Path], memory: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database with a table of each of `SUBJECTS`, and `urls` of both, until the end of the block.

    DuckDB takes `memory` megabytes, and a temporary folder for all else.

    Raises:
        CrawlprojectError: these are no events, or memory or disk are too small for them.
        KeyboardInterrupt: a signal has ended it.

    """
    with TemporaryDirectory(prefix="crawlproject-survey-") as folder:
        cores = len(os.sched_getaffinity(0))
        options: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory}MB",
            "threads": max(min(cores, memory // _MB_A_THREAD), 1),
            "temp_directory": folder,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,  # it would ask a server
        }
        try:
            with duckdb.connect(f"{folder}/urls.duckdb", config=options) as database:
                _fill(database, files)
                yield database
        except (RuntimeError, duckdb.InterruptException) as error:
            if "interrupt" in str(error).lower():  # what DuckDB makes of KeyboardInterrupt
                raise KeyboardInterrupt from None
            raise
        except duckdb.OutOfMemoryException:
            raise CrawlprojectError(
                f"--memory {memory} is too little for so many events, or {folder} has no room for them: give more "
                "memory, or set TMPDIR to a larger disk"
            ) from None
        except (duckdb.IOException, duckdb.InvalidInputException, duckdb.BinderException) as error:
            reason = str(error).strip().partition("\n")[0]
            raise CrawlprojectError(f"the events cannot be read: {reason}") from None


def _fill(database: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    database.execute("SET TimeZone = 'UTC'")
    database.execute(_HOST_OF)
    given: dict[str, list[str]] = {"tables": [], "lines": []}
    for file in files:
        given["tables" if file.suffix == ".parquet" else "lines"].append(glob.escape(str(file.resolve())))
    given = {name: places for name, places in given.items() if places}
    reads = []
    if "tables" in given:
        table = "read_parquet($tables, union_by_name = true, hive_partitioning = false)"
        found = database.execute(f"DESCRIBE FROM {table}", {"tables": given["tables"]}).fetchall()
        reads.append(_select(table, {name for name, *_ in found}))
    if "lines" in given:
        listed = {"statuses": "INTEGER[]", "outlinks": "STRUCT(url VARCHAR)[]"}
        names = dict.fromkeys(chain.from_iterable(names for _, names in _COLUMNS.values()))
        columns = ", ".join(f"\"{name}\": '{listed.get(name, 'VARCHAR')}'" for name in names)
        table = f"read_json($lines, columns = {{{columns}}}, format = 'newline_delimited', ignore_errors = true)"
        reads.append(_select(table, names))
    database.execute(_URLS.format(read=" UNION ALL BY NAME ".join(reads)), given)
    for subject in SUBJECTS:
        database.execute(f"CREATE VIEW {subject} AS FROM urls WHERE subject = '{subject}'")


def _select(table: str, present: Collection[str]) -> str:
    """Return the query for `_COLUMNS`; null stands for what is not `present`, or is of another type."""
    parts = []
    for name, (kind, names) in _COLUMNS.items():
        there = [f'"{one}"' for one in names if one in present]
        cast = "list_transform({}, lambda link: link.url)" if name == "outlinks" else f"TRY_CAST({{}} AS {kind})"
        value = f"coalesce({', '.join(map(cast.format, there))})" if there else f"NULL::{kind}"
        parts.append(f'{value} AS "{name}"')
    return f"SELECT {', '.join(parts)} FROM {table}"
