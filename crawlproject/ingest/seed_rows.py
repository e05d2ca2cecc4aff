"""From a row of a table, or an object of JSON, to a line of the seed list."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from crawlproject.errors import BadInput, BadSeed
from crawlproject.frontier.modes import modes
from crawlproject.frontier.seeds import seed_of
from crawlproject.ingest.seed_files import SeedFile
from crawlproject.models import EXTRA
from crawlproject.texts import printable, without_userinfo

TOO_LONG = "longer than 1 MiB"
SEED_KEYS = ("url", "uuid", "identifier", "source", "priority", "again", "depth", "scope")

_SHOWN = 30  # columns of a file, in a message
_WHOLE = re.compile(r"-?\d{1,18}")
_SCHEME = re.compile(r"[^/?#]*://")
# What a URL without a scheme begins with: a name with a dot in it, `localhost`, or an IPv6 address
_HOST = re.compile(r"[^/?#:]*[^/?#:.]\.[^/?#:.]|localhost(?![^/?#:])|\[")


@dataclass(frozen=True, slots=True)
class Line:
    """A line or row of a file: the `seed` for the seed list, or the reason why it cannot be one."""

    number: int
    seed: str | None
    reason: str = ""


class Reading:
    """How `scrapy feed` reads FILEs: as they are. Plug-ins do it in other ways, for an option `--NAME`.

    They raise UsageError where the FILEs or the options of the command are wrong.
    `about` is the help of `--NAME`; `options` are further ones, as argparse's `add_argument` takes them. `name` is
    what a feed is known by beside its files, `columns` are those of tables that `add` is given. If `are_fixed`, a
    feed is of the files that it began with, whatever comes behind them.
    """

    about: ClassVar[str] = ""
    options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    name: Sequence[Any] = ()
    columns: Sequence[str] = ()
    are_fixed: bool = False

    def __init__(self, files: Sequence[str] = (), opts: argparse.Namespace | None = None) -> None:
        pass

    def begin(self, files: Sequence[SeedFile]) -> None:
        """Look at all files, before the first is read. Raises BadInput, and OSError."""

    def has(self, file: int, row: int) -> bool:
        """Tell whether the row with this number, from 1, of the file with this index is read."""
        return True

    def add(self, data: dict[str, Any], row: Mapping[str, Any]) -> None:
        """Add to a seed what a row of a table has in `columns`. Raises ValueError where it is invalid."""

    def mark(self, data: dict[str, Any]) -> None:
        """Add to a seed what all of them have."""


_AS_THEY_ARE = Reading()


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a file are what of a seed.

    `named`: keys of a seed to columns; an empty column leaves the key out. Keys that are not in it are columns of
    their own name, in any case. `kept`: keys of the seed's `extra` to columns.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    reading: Reading = _AS_THEY_ARE

    @classmethod
    def of_options(cls, columns: str | None, keep: str | None, reading: Reading = _AS_THEY_ARE) -> Self:
        """Return what `url=URL,uuid=key` and `TEXT,license=LICENSE` say.

        Raises:
            ValueError: they cannot be read so; the message says why.

        """
        named: dict[str, str] = {}
        for pair in _listed(columns):
            key, equals, column = (part.strip() for part in pair.partition("="))
            if not equals or key not in SEED_KEYS or key in named:
                raise ValueError(
                    f"--columns {pair!r:.80}: expected KEY=COLUMN, each key once, of {', '.join(SEED_KEYS)}"
                )
            named[key] = column
        if named.get("url") == "":
            raise ValueError("--columns url=: a seed has a URL: name its column")
        kept = [part.strip() for part in _listed(keep)]
        pairs = ((name.strip(), column.strip()) for name, _, column in (part.partition("=") for part in kept))
        return cls(named, {name: column or name for name, column in pairs}, reading)

    @property
    def are_named(self) -> bool:
        """Whether a file must have certain columns."""
        return bool(self.kept or any(self.named.values()))

    def layout(self, name: str, columns: Sequence[str]) -> Layout:
        """Return where the values of a seed are in the rows of the file `name`, which has these `columns`.

        Raises:
            BadInput: it lacks one that was named, or has no URLs.

        """
        lower = {column.strip().lower(): column for column in reversed(columns)}
        keys = {key: column for key, column in self.named.items() if column}
        missing = next((column for column in (*keys.values(), *self.kept.values()) if column not in columns), None)
        keys |= {key: lower[key] for key in SEED_KEYS if key not in self.named and key in lower}
        if missing is None and "url" not in keys:
            missing = "url"
        if missing is not None:
            has = ", ".join(columns[:_SHOWN]) + (", ..." if len(columns) > _SHOWN else "")
            raise BadInput(
                f"{name} has no column {missing!r:.80}, only {printable(has, 1000)}: "
                "name columns as in --columns url=URL --keep TEXT"
            )
        return Layout(keys, self.kept, [name for name in self.reading.columns if name in columns], self.reading)

    def has_urls(self, columns: Sequence[str]) -> bool:
        """Tell whether one of `columns` is that of the URLs."""
        column = self.named.get("url")
        return column in columns if column else "url" in (name.lower() for name in columns)

    def ignored(self, name: str, columns: Sequence[str]) -> list[str]:
        """Return which of these `columns` of the file `name` nothing takes."""
        taken = set(self.layout(name, columns).read)
        return [column for column in columns if column not in taken]

    def of_object(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the seed in an object of JSON lines, which may have an `extra` of its own."""
        found = {
            key: data[column]
            for key in (*SEED_KEYS, EXTRA, *modes())
            if (column := self.named.get(key, key)) and column in data
        }
        if self.kept:
            found[EXTRA] = _kept(self.kept, data)
        return found


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table for each key of the seed, for each key of its `extra`, and those for `reading`."""

    keys: Mapping[str, str]
    kept: Mapping[str, str]
    more: Sequence[str]
    reading: Reading

    @property
    def read(self) -> list[str]:
        """The columns that are read, each once."""
        return list(dict.fromkeys((*self.keys.values(), *self.kept.values(), *self.more)))

    def seed_in(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the seed in a row, whose values are as in JSON; empty ones are left out."""
        data: dict[str, Any] = {}
        for key, column in self.keys.items():
            value = row.get(column)
            if isinstance(value, str):
                value = _typed(key, value.strip())
            if value not in (None, ""):
                data[key] = value
        if self.kept:
            data[EXTRA] = _kept(self.kept, row)
        if self.more:
            self.reading.add(data, {name: row[name] for name in self.more if name in row})
        return data


def _kept(kept: Mapping[str, str], row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[column] for name, column in kept.items() if row.get(column) not in (None, "")}


def _listed(text: str | None) -> Iterable[str]:
    return [item for part in (text or "").split(",") if (item := part.strip())]


def _typed(key: str, text: str) -> Any:
    """Give a value that is not text its type; `seed_of` refuses what does not fit."""
    if key in {"priority", "depth"} and _WHOLE.fullmatch(text):
        return int(text)
    if key == "again" and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    return text


def line_of(number: int, data: dict[str, Any], scheme: str, columns: Columns) -> Line:
    """Return the line of a seed; a URL without a scheme gets `scheme`."""
    columns.reading.mark(data)
    url = data.get("url")
    if isinstance(url, str) and (url := url.strip()) and not _SCHEME.match(url):
        url = url.removeprefix("//")
        if not _HOST.match(url):
            shown = printable(without_userinfo(url), 80)
            return Line(number, None, f"not a URL: {shown!r} begins neither with http:// nor with a host name")
        data["url"] = f"{scheme}://{url}"
    if not data.get(EXTRA, True):
        del data[EXTRA]
    try:
        seed_of(data)
    except BadSeed as error:
        return Line(number, None, str(error))
    if len(data) == 1:
        return Line(number, data["url"].strip())
    if data.get("uuid") not in {None, ""}:
        data.pop("identifier", None)  # which the uuid takes precedence over, and which nothing has checked
    return Line(number, json.dumps(data, ensure_ascii=False, separators=(",", ":")))
