"""From a row of a table, or an object of JSON, to a line of the seed list."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from crawlproject.errors import BadInput, BadSeed
from crawlproject.frontier import codec
from crawlproject.frontier.seeds import seed_of
from crawlproject.models import AGAIN, EXTRA, OF_FOUND, PROBE
from crawlproject.texts import printable, without_userinfo

TOO_LONG = "longer than 1 MiB"
SEED_KEYS = ("url", "uuid", "identifier", "source", "priority", "again", "depth", "scope")

_KNOWN = ("etag", "last_modified", "final_url", "filesize")  # columns of our datasets: what a probe knows
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


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a file are what of a seed.

    `named`: keys of a seed to columns; an empty column leaves the key out. Keys that are not in it are columns of
    their own name, in any case. `kept`: keys of the seed's `extra` to columns. `probe`: all seeds are probes;
    `again`: of rows of our own datasets, which tell what is known.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    probe: bool = False
    again: bool = False

    @classmethod
    def of_options(
        cls, columns: str | None, keep: str | None, *, probe: bool = False, again: bool = False
    ) -> Self:
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
        return cls(named, {name: column or name for name, column in pairs}, probe, again)

    @property
    def are_named(self) -> bool:
        """Whether a file must have certain columns."""
        return bool(self.kept or any(self.named.values()))

    def layout(self, name: str, columns: Sequence[str]) -> Layout:
        """Return where the values of a seed are in the rows of the file `name`, which has these `columns`.

        Raises:
            BadInput: it lacks one that was named, or has no URLs.

        """
        places = {column: index for index, column in reversed(list(enumerate(columns)))}
        lower = {column.strip().lower(): index for column, index in places.items()}
        wanted = [*filter(None, self.named.values()), *self.kept.values()]
        missing = next((column for column in wanted if column not in places), None)
        keys = {key: places[column] for key, column in self.named.items() if column and column in places}
        keys |= {key: lower[key] for key in SEED_KEYS if key not in self.named and key in lower}
        if missing is None and "url" not in keys:
            missing = "url"
        if missing is not None:
            has = ", ".join(columns[:_SHOWN]) + (", ..." if len(columns) > _SHOWN else "")
            raise BadInput(
                f"{name} has no column {missing!r:.80}, only {printable(has, 1000)}: "
                "name columns as in --columns url=URL --keep TEXT"
            )
        known = {name: places[name] for name in (*_KNOWN, EXTRA, "status") if name in places} if self.again else {}
        return Layout(keys, {name: places[column] for name, column in self.kept.items()}, known)

    def has_urls(self, columns: Sequence[str]) -> bool:
        """Tell whether one of `columns` is that of the URLs."""
        column = self.named.get("url")
        return column in columns if column else "url" in (name.lower() for name in columns)

    def ignored(self, name: str, columns: Sequence[str]) -> list[str]:
        """Return which of these `columns` of the file `name` nothing takes."""
        taken = set(self.layout(name, columns).read)
        return [column for index, column in enumerate(columns) if index not in taken]

    def of_object(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the seed in an object of JSON lines, which may have an `extra` of its own."""
        found = {
            key: data[column]
            for key in (*SEED_KEYS, EXTRA, PROBE)
            if (column := self.named.get(key, key)) and column in data
        }
        if self.kept:
            values = {name: data.get(column) for name, column in self.kept.items()}
            found[EXTRA] = {name: value for name, value in values.items() if value not in (None, "")}
        return found

    def marked(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return a seed with what holds for all."""
        if self.probe:
            data[PROBE] = data.get(PROBE) or True
        if self.again:
            data[AGAIN] = True
        return data


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a row: the index of each key of the seed, of each column that becomes its `extra`, and, in our
    own datasets, the columns with what the last fetch has told.
    """

    keys: Mapping[str, int]
    kept: Mapping[str, int]
    known: Mapping[str, int] = field(default_factory=dict)

    @property
    def read(self) -> list[int]:
        """The indices, each once, in order."""
        return sorted({*self.keys.values(), *self.kept.values(), *self.known.values()})

    def among(self, read: Sequence[int]) -> Layout:
        """Return where they are in rows of only the columns with these indices."""
        places = {index: place for place, index in enumerate(read)}
        parts = (self.keys, self.kept, self.known)
        return Layout(*({name: places[index] for name, index in part.items()} for part in parts))

    def seed_in(self, row: Sequence[Any], plain: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the seed in a row, whose values `plain` makes JSON of; empty ones are left out."""
        data: dict[str, Any] = {}
        for key, index in self.keys.items():
            value = plain(row[index]) if index < len(row) else None
            if isinstance(value, str):
                value = _typed(key, value.strip())
            if value not in (None, ""):
                data[key] = value
        if self.kept:
            values = {name: plain(row[index]) for name, index in self.kept.items() if index < len(row)}
            data[EXTRA] = {name: value for name, value in values.items() if value not in (None, "")}
        if self.known:
            values = {name: plain(row[index]) for name, index in self.known.items()}
            extra, status = values.pop(EXTRA, None), values.pop("status", None)
            if extra is not None:
                data[EXTRA] = _fed(extra, status) | data.get(EXTRA, {})
            is_said = {"final_url": values.get("final_url") != data.get("url")}
            data[PROBE] = {name: value for name, value in values.items() if value and is_said.get(name, True)}
        return data


def _fed(text: str, status: str) -> dict[str, Any]:
    """Return the `extra` of a seed from the column `extra` of a row of our datasets with this status.

    What was fed has room there. What a page said may stand beside it: that is left out if it is too much. So is
    the line of the seed, which stands beside it in some failures.

    Raises:
        ValueError: it is no JSON object.

    """
    try:
        extra = dict(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"its extra is no JSON object: {text!r:.80}") from None
    if status == "failed":
        extra.pop("seed", None)
    if codec.extra_fault(extra):
        extra = {name: value for name, value in extra.items() if name not in OF_FOUND}
    return extra


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
    data = columns.marked(data)
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
