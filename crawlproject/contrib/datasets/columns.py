"""Which columns of a list become what of a dataset."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from crawlproject.contrib.datasets.targets import ParquetTarget
from crawlproject.errors import BadInput
from crawlproject.ingest.seed_rows import Columns, Reading
from crawlproject.texts import printable

_URLS = ("url", "image_url")  # columns of URLs, in any case
_KEYS = {"id": "uuid", "url": "url", "source": "source", "priority": "priority"}  # names to keys of a seed
CAPTION = "caption"


class _ByBoth(Reading):
    """Names each image by its `id` and URL: lists number their rows alike, and thumbnails have these names."""

    def mark(self, data: dict[str, Any]) -> None:
        """Make the row's `id` and URL the identifier."""
        if isinstance(given := data.get("uuid"), str | int):
            data["uuid"] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{given}\n{data.get('url')}"))


class Mapped(NamedTuple):
    """What the options say: `columns` for the feed, `keep` for the dataset, as of its option --keep.

    `pairs` are names in the dataset to columns, `ignored` the columns that nothing takes.
    """

    pairs: Mapping[str, str]
    columns: Columns
    keep: str
    has_caption: bool
    ignored: list[str]


def mapped(name: str, found: Mapping[str, str], wanted: str | None, form: type[ParquetTarget]) -> Mapped:
    """Return what `caption=TEXT,id=key,LICENSE` makes of the file `name`; `found` are its columns, with kinds.

    Raises:
        BadInput: a column is not there, there is none of URLs, or the file is empty.
        ValueError: `wanted` cannot be read, or a dataset of this `form` has such a column by itself.

    """
    if not found:
        raise BadInput(f"{name} is empty")
    pairs: dict[str, str] = {}
    for part in filter(None, map(str.strip, (wanted or "").split(","))):
        key, equals, column = (one.strip() for one in part.partition("="))
        if not key or (equals and not column) or key in pairs:
            raise ValueError(f"--columns {part!r:.80}: expected NAME=COLUMN, or COLUMN, each name once")
        pairs[key] = column or key
    lower = {column.lower(): column for column in reversed(list(found))}
    urls = [lower[one] for one in _URLS if one in lower]
    # A list of URLs, without a header: `found` is its first line.
    is_plain = not urls and (any("://" in column for column in found) or (len(found) < 2 and not pairs))
    has = "a plain list of URLs" if is_plain else f"only {printable(', '.join(found), 1000)}"
    for column in pairs.values():
        if is_plain or column not in found:
            raise BadInput(f"{name} has no column {column!r:.80}, {has}")
    if is_plain:
        return Mapped({}, Columns(), "", False, [])
    if "url" not in pairs:
        if not urls:
            raise BadInput(f"{name} has no column of URLs, {has}: name it, as in --url COLUMN")
        pairs["url"] = urls[0]
    if own := lower.get("uuid") or lower.get("identifier"):  # by which a feed names images
        pairs.setdefault("id", own)
    named = {key: pairs[of] for of, key in _KEYS.items() if of in pairs}
    if "uuid" in named:
        named["identifier"] = ""  # the other name of the same
    kept = {of: column for of, column in pairs.items() if of == "id" or of not in _KEYS}
    columns = Columns(named, kept, _ByBoth())
    kinds = {of: found[column].replace("json", "string") for of, column in kept.items()}
    has_caption = CAPTION in form.more and kinds.pop(CAPTION, None) is not None
    keep = ",".join(f"{of}:{kind}" for of, kind in kinds.items())
    try:
        form.kept_columns(keep)
    except ValueError as error:
        raise ValueError(f"--columns {error}, as in listed_width=WIDTH") from None
    return Mapped(pairs, columns, keep, has_caption, columns.ignored(name, list(found)))
