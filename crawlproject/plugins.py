"""What is optional: plug-ins, which the core knows by what they offer, and by no name (docs/plugins.md)."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from crawlproject.models import IMAGE_FORMATS, FileType, Format

GROUP = "crawlproject.plugins"  # of the entry points of installed packages
FOLDER = "crawlproject.contrib"  # each of whose folders has a module `plugin`


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """What a plug-in offers. Values are paths of classes and functions, as in Scrapy's settings, loaded when used.

    `settings`: a dataclass whose fields are made by `config.setting`; a bad value stops every start.
    `commands`: a package with commands of `scrapy`, each a module.
    `readers`: what `scrapy events` writes to, by name (`sinks.sink.Target`).
    `feeders`: what `scrapy feed` reads from besides files, by name (`ingest.seed_stream.SeedStream`).
    `analyses`: functions of a PIL image for `CRAWL_ANALYSES`, as `module:function`, by the names that stand there.
    `formats`: what `CRAWL_FORMATS` can name beside Pillow's own: a `models.Format`, as `module:object`, by name.
    `modes`: ways to fetch an image that a seed asks for by a key of that name (`frontier.modes.Mode`).
    `readings`: ways in which `scrapy feed --NAME` reads files (`ingest.seed_rows.Reading`).
    `inspections`: functions that decoders call in place of decoding, as `module:function`, by the names that items
    have (`imaging.messages.Inspected`). Given body, content codings and `Job`, they return what JSON can hold.
    `services`: what `scrapy monitor` runs beside its reports, by name (`status.service.Service`).
    `checks`: functions of Scrapy's settings, by name, that `scrapy crawl` calls before anything starts; they raise
    ConfigError if the crawl would fail.
    `pages_of_source`: functions of a `State` and the name of a source that return a page about it, by name: its
    HTML, and its Content-Security-Policy. LookupError: nothing is known of that source.
    `scrapy`: additions to those of Scrapy's settings that are dicts, such as `ITEM_PIPELINES`.
    """

    settings: type | None = None
    commands: str = ""
    readers: Mapping[str, str] = field(default_factory=dict)
    feeders: Mapping[str, str] = field(default_factory=dict)
    analyses: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)
    readings: Mapping[str, str] = field(default_factory=dict)
    inspections: Mapping[str, str] = field(default_factory=dict)
    services: Mapping[str, str] = field(default_factory=dict)
    checks: Mapping[str, str] = field(default_factory=dict)
    pages_of_source: Mapping[str, str] = field(default_factory=dict)
    scrapy: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


_NAMED = tuple(one.name for one in fields(Plugin) if one.name not in {"settings", "scrapy"})


@functools.cache
def found() -> Mapping[str, Plugin]:
    """Return all plug-ins, by name: those in the folders of `contrib`, then those of installed packages.

    Raises:
        ConfigError: one cannot be loaded, or is none, or two offer the same.

    """
    from importlib import metadata  # here: decoders import this module, and find no plug-ins

    from crawlproject.errors import ConfigError  # here: it imports Scrapy, which decoders must not

    folder = find_spec(FOLDER)
    paths = folder.submodule_search_locations if folder else None
    names = [one.name for one in pkgutil.iter_modules(paths or []) if one.ispkg]
    loads: list[tuple[str, Callable[[], Any]]] = [(name, partial(_in_folder, name)) for name in names]
    loads += [(point.name, point.load) for point in metadata.entry_points(group=GROUP)]
    plugins: dict[str, Plugin] = {}
    owners: dict[tuple[str, str], str] = {}
    for name, load in loads:
        if name in plugins:
            raise ConfigError(f"two plug-ins are called {name}: uninstall one")
        plugins[name] = _loaded(name, load)
        for what in _NAMED:
            for each in _names(plugins[name], what):
                if (other := owners.setdefault((what, each), name)) != name:
                    raise ConfigError(f"the plug-ins {other} and {name} both offer {each} ({what}): uninstall one")
    return plugins


def _names(plugin: Plugin, what: str) -> Iterable[str]:
    if what != "commands":
        return list(getattr(plugin, what))
    folder = import_module(plugin.commands).__path__ if plugin.commands else ()
    return [one.name for one in pkgutil.iter_modules(folder)]


def _in_folder(name: str) -> Any:
    return import_module(f"{FOLDER}.{name}.plugin").PLUGIN


def _loaded(name: str, load: Callable[[], Any]) -> Plugin:
    from crawlproject.errors import ConfigError

    try:
        plugin = load()
        if isinstance(plugin, Plugin) and plugin.commands:
            import_module(plugin.commands)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
        raise ConfigError(f"the plug-in {name} cannot be loaded ({fault}): repair it, or uninstall it") from error
    if not isinstance(plugin, Plugin):
        raise ConfigError(
            f"the plug-in {name} is {plugin!r}: its entry point must name a Plugin (docs/plugins.md)"
        )
    return plugin


def loaded(what: str, say: Callable[[str], object]) -> dict[str, Any]:
    """Return what plug-ins offer of one kind, by name; tell `say` of what cannot be loaded, and leave it out."""
    objects: dict[str, Any] = {}
    for plugin, one in found().items():
        for name, path in getattr(one, what).items():
            try:
                objects[name] = pkgutil.resolve_name(path)
            except Exception as error:
                fault = f"{path} cannot be loaded ({type(error).__name__}: {error})"
                say(f"the plug-in {plugin} offers {name}, but {fault}: repair it, or uninstall it")
    return objects


def offered(what: str) -> dict[str, Any]:
    """Return what all plug-ins offer of one kind, such as `readers`, by name."""
    return {name: path for one in found().values() for name, path in getattr(one, what).items()}


@functools.cache
def format_at(path: str) -> Format:
    """Return the format at a path, as in `formats`; decoders, too, which find no plug-ins."""
    one: Format = pkgutil.resolve_name(path)
    return one


def file_types() -> dict[str, FileType]:
    """Return how originals are stored, by the names of all formats."""
    found = dict(IMAGE_FORMATS)
    for name, path in offered("formats").items():
        with suppress(Exception):  # decoders say that it cannot be loaded (imaging/decoders.py)
            found[name] = format_at(path).file
    return found


def content_type_of(name: str) -> str:
    """Return the content type of a thumbnail or an original by its name; of any other, that of any bytes."""
    found = (each.content_type for each in file_types().values() if name.endswith(each.suffix))
    return next(found, "application/octet-stream")


def scrapys_settings() -> dict[str, dict[str, Any]]:
    """Return what plug-ins add to Scrapy's settings."""
    merged: dict[str, dict[str, Any]] = {}
    for plugin in found().values():
        for name, more in plugin.scrapy.items():
            merged[name] = merged.get(name, {}) | dict(more)
    return merged


def command_folders() -> list[str]:
    """Return the folders in which plug-ins have commands."""
    specs = [find_spec(one.commands) for one in found().values() if one.commands]
    return [path for spec in specs if spec for path in spec.submodule_search_locations or ()]
