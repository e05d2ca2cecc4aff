"""The settings of plug-ins: read, refused, documented, and named rightly in deploy/."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crawlproject import config, plugins
from crawlproject.errors import ConfigError
from tests.test_docs import rows, shown

CONTRIB = Path(plugins.__file__).parent / "contrib"
OURS = {name: one for name, one in plugins.found().items() if (CONTRIB / name).is_dir()}
STORE: Any = ([("", None), ("/a/b", "/a/b"), ("s3://b/p/", "s3://b/p/")], ["s3://b", "gs://b/"])
ADDRESS: Any = ([("0.0.0.0", "0.0.0.0"), ("::1", "::1")], ["localhost", "", "127.0.0.1:9411"])
BOUNDS: dict[str, tuple[list[tuple[Any, Any]], list[Any]]] = {
    "CRAWL_KAFKA_BROKERS": (
        [
            ("", ()),
            ("k:9092", ("k:9092",)),
            ("k1.example:9092, [::1]:9093", ("k1.example:9092", "[::1]:9093")),
            (["127.0.0.1:1"], ("127.0.0.1:1",)),
        ],
        ["k", "kafka://k:9092", "k:9092;l:9092", "k:9092/topic", "user:pw@k:9092", 5, True],
    ),
    "CRAWL_KAFKA_OPTIONS": (
        [
            ("", ()),
            ("{}", ()),
            ({}, ()),
            ('{"debug": "all", "x": true, "n": 5}', (("debug", "all"), ("x", "true"), ("n", "5"))),
            ({"sasl.password": 'a,"b'}, (("sasl.password", 'a,"b'),)),
        ],
        ["x=1", "[1]", "5", '{"acks": 1}', '{"x": null}', '{"x": {"y": 1}}', "{" * 100_000, 5, True],
    ),
    "CRAWL_PAGES_STORE": STORE,
    "CRAWL_PAGES_SPOOL": ([("spool", "spool"), (Path("/a/b"), "/a/b")], ["", " ", "s3://b/", "file:///a"]),
    "CRAWL_METRICS_PORT": ([("9411", 9411), ("", None)], ["0", "65536", "http", True]),
    "CRAWL_METRICS_ADDRESS": ADDRESS,
    "CRAWL_OVERFLOW_STORE": STORE,
    "CRAWL_DASHBOARD_PORT": ([("9412", 9412), ("0", 0)], ["-1", "65536", "http", True]),
    "CRAWL_DASHBOARD_ADDRESS": ADDRESS,
    "CRAWL_DASHBOARD_PASSWORD": ([("a secret", "a secret"), ("", None)], []),
    "CRAWL_DASHBOARD_ORIGIN": (
        [
            ("https://crawl.example.org", "https://crawl.example.org"),
            ("HTTPS://Crawl.Example.org:443/", "https://crawl.example.org"),
            ("http://crawl:80", "http://crawl"),
            ("http://[::1]:443", "http://[::1]:443"),
            ("", None),
        ],
        [
            *("crawl.example.org", "https://", "ftp://crawl.example.org", "https://crawl.example.org/crawl"),
            *("https://h?", "https://h/#a", "https://h:port", "https://[::1"),
            *("https://h evil", "https://h\r\nX-Evil: 1", "https://m\xfcsli.example", True),
        ],
    ),
}
TABLES = {name: config.table(one.settings) for name, one in OURS.items() if one.settings}
SETTINGS = {name: (folder, one) for folder, table in TABLES.items() for name, one in table.items()}


def value_of(name: str, given: Any) -> Any:
    kind = OURS[SETTINGS[name][0]].settings
    assert kind is not None
    fields = dict(zip(config.table(kind), kind.__slots__, strict=True))  # type: ignore[attr-defined]
    return getattr(config.read(kind, {name: given}), fields[name])


@pytest.mark.parametrize(
    ("name", "given", "read"), [(name, *pair) for name in SETTINGS for pair in BOUNDS[name][0]]
)
def test_reads(name: str, given: Any, read: Any) -> None:
    assert value_of(name, given) == read


@pytest.mark.parametrize(("name", "given"), [(name, one) for name in SETTINGS for one in BOUNDS[name][1]])
def test_refuses_at_every_start_with_name_and_value(name: str, given: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load({name: given})
    assert f"{name}={'***' if SETTINGS[name][1]['secret'] else repr(given)} must be " in str(caught.value)


@pytest.mark.parametrize("name", TABLES)
def test_the_table_of_settings_of_a_plugin_is_that_of_the_code(name: str) -> None:
    text = (CONTRIB / name / "README.md").read_text(encoding="utf-8").split("## Settings\n")[1].split("\n## ")[0]
    assert sorted(rows(text)) == sorted(
        [f"`{setting}`", shown(one["default"]), one["unit"], one["meaning"]]
        for setting, one in TABLES[name].items()
    )


@pytest.mark.parametrize("name", TABLES)
def test_deploy_names_no_setting_of_a_plugin_that_there_is_not(name: str) -> None:
    texts = [path.read_text() for path in (CONTRIB.parents[1] / "deploy").rglob("*.*") if path.is_file()]
    prefix = OURS[name].settings.PREFIX  # type: ignore[union-attr]
    named = set(re.findall(rf"\b{prefix}[A-Z_]+\b", " ".join(texts)))
    assert set() < named & TABLES[name].keys()
    assert named <= TABLES[name].keys() | config.SETTINGS.keys()


def test_their_commands_and_options_are_listed_and_completed() -> None:
    def said(*words: str) -> str:
        command = [sys.executable, "-m", "crawlproject", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout

    assert re.search(r"^  report +\S", said("--help"), flags=re.MULTILINE)
    assert {"report", "--again"} <= set(re.findall(r"[\w-]+", said("completion", "bash")))
