"""Settings: what is accepted, what stops the start, and which of several sources wins."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crawlproject import __version__
from crawlproject.config import SETTINGS, Config, environment, load, project_dir
from crawlproject.errors import ConfigError
from crawlproject.models import IMAGE_FORMATS, OPT_OUTS

if TYPE_CHECKING:
    from tests.conftest import Scrapy

# Of each setting: what may be given and what is read of it, and what is refused.
Bounds = tuple[list[tuple[Any, Any]], list[Any]]

BOUNDS: dict[str, Bounds] = {
    "REDIS_URL": (
        [
            ("redis://h:6379/1", "redis://h:6379/1"),
            (" rediss://u:p@h ", "rediss://u:p@h"),
            ("unix:///tmp/r.sock", "unix:///tmp/r.sock"),
            ("", None),
            (None, None),
        ],
        [
            "h:6379",
            "http://h",
            "redis:/",
            "redis//h",
            "redis://h:port",
            "redis://h:70000",
            "redis://[::1",
            6379,
            "redis://h redis+cluster://h",
        ],
    ),
    "IMAGES_STORE": (
        [
            ("out", "out"),
            ("/a/b", "/a/b"),
            (Path("/a"), "/a"),
            ("file:///a", "file:///a"),
            ("s3://b/", "s3://b/"),
            ("s3://b/p/q/", "s3://b/p/q/"),
        ],
        ["", " ", "s3://b", "s3://b/p", "s3:///p/", "gs://b/", "ftp://h/", "http://h/"],
    ),
    "AWS_ENDPOINT_URL": ([("http://127.0.0.1:9000", "http://127.0.0.1:9000"), ("", None)], []),
    "MAX_IDLE_TIME_BEFORE_CLOSE": ([("0", 0), ("0.5", 0.5), (60, 60)], ["-1", "", "soon", "nan", "inf"]),
    "DOWNLOAD_MAXSIZE": ([("1", 1), ("50_000_000", 50_000_000)], ["0", "-1", "1.5", "1e6", "50MB", "", True]),
    "DOWNLOAD_TIMEOUT": ([("0.1", 0.1), (180, 180)], ["0", "-1", "inf", "nan", ""]),
    "CRAWL_SHARDS": ([("1", 1), ("16", 16), ("12", 12), (256, 256)], ["0", "257", "", "1.5", True]),
    "CRAWL_SHARD": ([("", ()), ("0", (0,)), ([0, "0"], (0,)), (0, (0,))], ["-1", "256", "x", "0;1", -1]),
    "CRAWL_REDIS_WAIT": ([("forwarded", "forwarded"), ("all", "all")], ["", "none", "All", 1]),
    "CRAWL_PAGES_IMAGES": ([("licensed", "licensed"), ("all", "all"), ("none", "none")], ["", "All", "some", 1]),
    "CRAWL_PAGES_REVISIT": (
        [("0", 0), ("3600", 3600), (2_592_000, 2_592_000)],
        ["-1", "2592001", "", "1h", "nan"],
    ),
    "CRAWL_SOURCES": ([("c.json", "c.json"), ("https://h/c", "https://h/c"), ("", None)], []),
    "CRAWL_EXCLUDE": ([("never.txt", "never.txt"), ("", None)], []),
    "CRAWL_UNKNOWN_SOURCES": ([("minimum", "minimum"), ("refuse", "refuse")], ["", "Refuse", "no", 1]),
    "CRAWL_SOURCE_TRUST": ([("catalogue", "catalogue"), ("hosts", "hosts")], ["", "Hosts", "all", 1]),
    "CRAWL_CONTACT": (
        [
            ("https://example.org/bot", "https://example.org/bot"),
            ("http://example.org", "http://example.org"),
            ("mailto:bot@example.org", "mailto:bot@example.org"),
            ("", None),
        ],
        [
            "bot@example.org",
            "example.org",
            "mailto:bot",
            "https://",
            "ftp://example.org",
            "https://example.org/ (bot)",
            "https://[::1",
            "https://example.org/\r\nX-Evil: 1",
        ],
    ),
    "CRAWL_NAMESPACE": (
        [("crawl", "crawl"), ("{a}", "{a}"), ("A.b_c-1", "A.b_c-1"), ("x" * 64, "x" * 64)],
        ["", "a b", "a:b", "a*", "ä", "x" * 65, "a\n"],
    ),
    "CRAWL_MAX_RETRIES": ([("0", 0), (100, 100), (" 7 ", 7)], ["-1", "101", "1.0", "", "one", True, False]),
    "CRAWL_RETRY_DELAY": ([("0.001", 0.001), (10, 10)], ["0", "-1", "nan", ""]),
    "CRAWL_HEARTBEAT_TIMEOUT": ([("1", 1), ("30.5", 30.5)], ["0.9", "0", "-1", "nan", ""]),
    "CRAWL_FRONTIER_HIGH_WATER": ([("4", 4), ("100_000_000", 100_000_000)], ["3", "0", ""]),
    "CRAWL_OVERFLOW_MAXLEN": ([("1", 1), ("100_000_000", 100_000_000)], ["0", "-1", ""]),
    "CRAWL_OVERFLOW_STORE": (
        [("", None), ("packs", "packs"), ("s3://b/p/", "s3://b/p/")],
        ["s3://b", "gs://b/", "http://h/"],
    ),
    "CRAWL_PAGES_BUDGET_MAX": ([("0", 0), ("100_000", 100_000)], ["-1", "1.5", "1000000000001", "", True]),
    "CRAWL_STREAM_MAXLEN": ([("1", 1), ("5", 5)], ["0", "-1", ""]),
    "CRAWL_EVENTS_UNREAD": ([("keep", "keep"), ("drop", "drop")], ["pause", "Keep", ""]),
    "CRAWL_MAX_PIXELS": ([("1", 1), ("100000000", 100_000_000)], ["0", "-1", "many", ""]),
    "CRAWL_FORMATS": (
        [
            ("JPEG", ("JPEG",)),
            ("svg, Jpeg2000,,JPEG,", ("JPEG", "JPEG2000", "SVG")),
            (["PNG", "GIF", "PNG"], ("PNG", "GIF")),
            (",".join(IMAGE_FORMATS), tuple(IMAGE_FORMATS)),
        ],
        ["", " , ", (), "JPG", "jpeg;png", "JPEG PNG", "image/jpeg", "EPS", "all", 5, True],
    ),
    "CRAWL_THUMBNAIL_SIZES": (
        [("640", (640,)), (640, (640,)), (" 640, 256,", (640, 256)), ((16, 2048), (16, 2048))],
        ["", "15", "640,2049", "640,640", "640;256", "640x480", "16,17,18,19,20,21,22,23,24", "large", True],
    ),
    "CRAWL_THUMBNAIL_MODE": (
        [("keep_ratio", "keep_ratio"), ("center_crop", "center_crop"), ("border", "border")],
        ["no", "fixed", "Border", "crop", ""],
    ),
    "CRAWL_KEEP_ORIGINALS": (
        [("", None), ("originals", "originals"), ("s3://b/p/", "s3://b/p/")],
        ["s3://b", "gs://b/", "http://h/"],
    ),
    "CRAWL_ANALYSES": (
        [("", ()), ("a:b", ("a:b",)), (" a.b_1:c , d:e,", ("a.b_1:c", "d:e")), (["a:b"], ("a:b",))],
        [
            "a",
            "a:",
            ":b",
            "a:b:c",
            "a.b",
            "a-b:c",
            "a:b c",
            "a:b,c:b",
            ",".join(f"a:f{n}" for n in range(17)),
            True,
        ],
    ),
    "CRAWL_THUMBNAIL_FORMAT": ([("JPEG", "JPEG"), ("WebP", "WebP")], ["webp", "PNG", "image/webp", ""]),
    "CRAWL_THUMBNAIL_QUALITY": ([("1", 1), ("95", 95)], ["0", "96", "100", "high", ""]),
    "CRAWL_DECODE_PROCESSES": ([("1", 1), ("64", 64)], ["0", "65", ""]),
    "CRAWL_DECODE_TIMEOUT": ([("0.5", 0.5), (20, 20)], ["0", "-1", "inf", ""]),
    "CRAWL_OPT_OUTS": (
        [
            ("", ()),
            (" , ", ()),
            ((), ()),
            ("noai", ("noai",)),
            ("NoIndex, content-usage:train-ai,", ("noindex", "content-usage:train-ai")),
            (["tdm-reservation"], ("tdm-reservation",)),
        ],
        ["all", "noai;noindex", "noai, nofollow", "X-Robots-Tag: noai", "content-usage:", "noai noindex", 5, True],
    ),
    "CRAWL_CIRCUIT_ERRORS": ([("0", 0), ("0.25", 0.25), (1, 1)], ["-0.1", "1.1", "10%", ""]),
    "CRAWL_PAGES_DELAY": ([("70", 70), ("0", 0), ("0.5", 0.5), ("86400", 86400)], ["-1", "86401", "nan", ""]),
    "CRAWL_STRAIN": ([("True", True), ("no", False)], ["", "2"]),
    "CRAWL_ROBOTS_DELAY_MAX": ([("0.5", 0.5), (60, 60)], ["0", "-1", "inf", ""]),
    "CRAWL_ALLOW_NETWORKS": (
        [
            ("", ()),
            (" , ", ()),
            ((), ()),
            ("127.0.0.0/8", (ip_network("127.0.0.0/8"),)),
            ("10.1.2.3, fd00::/8", (ip_network("10.1.2.3/32"), ip_network("fd00::/8"))),
            (["10.0.0.0/8"], (ip_network("10.0.0.0/8"),)),
        ],
        ["localhost", "127.0.0.1/8", "10.0.0.0/8;10.1.0.0/16", "300.0.0.0/8", 5],
    ),
    "CRAWL_DENY_NETWORKS": (
        [
            ("", ()),
            ("203.0.113.0/24, 2001:db8::/32", (ip_network("203.0.113.0/24"), ip_network("2001:db8::/32"))),
            (["192.0.2.1"], (ip_network("192.0.2.1/32"),)),
            ("::ffff:203.0.114.0/120, ::ffff:8.8.8.8", (ip_network("203.0.114.0/24"), ip_network("8.8.8.8"))),
            ("::ffff:0:0/96, 64:ff9b::/96", (ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96"))),
        ],
        ["64:ff9b::203.0.114.0/120", "example.org", "203.0.113.1/24", "203.0.113.0/33", 5],
    ),
    "CRAWL_NAT64_PREFIXES": (
        [
            ("", ()),
            ("64:ff9b:1::/48,2001:db8:64::/96", (ip_network("64:ff9b:1::/48"), ip_network("2001:db8:64::/96"))),
            ("2001:db8::/32", (ip_network("2001:db8::/32"),)),
        ],
        ["2001:db8::/33", "2001:db8::/128", "2001:db8::1", "10.0.0.0/8", "2001:db8::1/96", "nat64", 5],
    ),
    "CRAWL_ALLOW_PORTS": (
        [("", ()), ("8080", (8080,)), ("1, 65535,", (1, 65535)), ([8000, "8001"], (8000, 8001)), (8080, (8080,))],
        ["0", "65536", "http", "80;81", "80-90", 65536],
    ),
    "CRAWL_DNS_SERVERS": (
        [
            ("", ()),
            ("9.9.9.9, 127.0.0.1:5353", ("9.9.9.9", "127.0.0.1:5353")),
            ("2620:fe::fe,[::1]:53", ("2620:fe::fe", "[::1]:53")),
        ],
        ["localhost", "dns.example.org:53", "127.0.0.1:dns", "127.0.0.1:65536", 53],
    ),
    "CRAWL_TLS_FAILURES": ([("refuse", "refuse"), ("record", "record")], ["", "ignore", False]),
    "CRAWL_SHUTDOWN_GRACE": ([("0", 0), ("2.5", 2.5)], ["-1", "nan", ""]),
    "CRAWL_LOG_FORMAT": ([("text", "text"), ("json", "json")], ["", "xml", "JSON", 1]),
    "CRAWL_PAGES_STORE": (
        [("out", "out"), ("/a/b", "/a/b"), ("s3://b/p/", "s3://b/p/"), ("", None), (None, None)],
        [" ", "s3://b", "s3://b/p", "gs://b/"],
    ),
    "CRAWL_PAGES_SPOOL": ([("spool", "spool"), (Path("/a/b"), "/a/b")], ["", " ", "s3://b/", "file:///a"]),
    "CRAWL_MONITOR_FILE": ([("m.jsonl", "m.jsonl"), ("", None)], []),
    "CRAWL_METRICS_PORT": ([("9411", 9411), ("", None)], ["0", "65536", "http", True]),
    "CRAWL_METRICS_ADDRESS": ([("0.0.0.0", "0.0.0.0"), ("::1", "::1")], ["localhost", "", "127.0.0.1:9410"]),
}
FIELDS = {setting["name"]: field for field, setting in zip(Config.__slots__, SETTINGS.values(), strict=True)}


def test_the_ipv4_network_is_named_for_one_behind_nat64() -> None:
    with pytest.raises(ConfigError, match=r"not 64:ff9b::cb00:7200/120: 203\.0\.114\.0/24 closes"):
        load({"CRAWL_DENY_NETWORKS": "64:ff9b::cb00:7200/120"})


def test_a_worker_serves_shards_that_there_are() -> None:
    assert load({"CRAWL_SHARDS": "4", "CRAWL_SHARD": "0, 3"}).shard == (0, 3)
    with pytest.raises(ConfigError, match="CRAWL_SHARD=4 is none of CRAWL_SHARDS=4"):
        load({"CRAWL_SHARDS": "4", "CRAWL_SHARD": "3,4"})


def test_the_bounds_of_every_setting_are_tried() -> None:
    assert BOUNDS.keys() == SETTINGS.keys()


@pytest.mark.parametrize(
    ("name", "given", "read"), [(name, *pair) for name, (good, _) in BOUNDS.items() for pair in good]
)
def test_reads(name: str, given: Any, read: Any) -> None:
    value = getattr(load({name: given}), FIELDS[name])
    assert value == read
    assert isinstance(value, bool) == isinstance(read, bool)


@pytest.mark.parametrize(("name", "given"), [(name, one) for name, (_, bad) in BOUNDS.items() for one in bad])
def test_refuses_with_name_and_value(name: str, given: Any) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        load({name: given})
    message = str(caught.value)
    shown = "***" if SETTINGS[name]["secret"] else repr(given)
    assert f"{name}={shown} must be " in message
    remedy = message.partition(" must be ")[2]
    begins = (
        "a ",
        "an ",
        "1 ",
        "True ",
        "networks ",
        "opt-outs, ",
        "ports ",
        "addresses ",
        "brokers ",
        "formats, ",
        "at least one format ",
        "s3://",
        "'",
    )
    assert remedy.startswith(begins), remedy


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_is_not_given_has_its_default(name: str) -> None:
    setting = SETTINGS[name]
    default = setting["default"]
    assert getattr(load({}), FIELDS[name]) == default
    if default is not None and default != ():
        assert setting["parse"](default) == default  # it keeps its own bounds
    assert setting["meaning"]


def test_an_unknown_opt_out_is_named_and_the_known_ones_are_listed() -> None:
    with pytest.raises(ConfigError, match=r"; not nofollow, all$") as caught:
        load({"CRAWL_OPT_OUTS": "noai, nofollow, all"})
    assert all(f"{name}," in str(caught.value).replace(";", ",") for name in OPT_OUTS)


def test_an_unknown_format_is_named_and_the_known_ones_are_listed() -> None:
    with pytest.raises(ConfigError, match=r"^CRAWL_FORMATS='jpeg, eps, WMF' must be .*; not eps, WMF$") as caught:
        load({"CRAWL_FORMATS": "jpeg, eps, WMF"})
    assert all(f" {name}," in str(caught.value).replace(";", ",") for name in IMAGE_FORMATS)


def test_each_shard_may_have_a_redis_of_its_own() -> None:
    urls = "redis://h/1  redis+sentinel://h/a "
    assert load({"CRAWL_SHARDS": 2, "REDIS_URL": urls}).redis_urls == ("redis://h/1", "redis+sentinel://h/a")
    with pytest.raises(ConfigError, match="REDIS_URL has 2 URLs and CRAWL_SHARDS is 4"):
        load({"CRAWL_SHARDS": 4, "REDIS_URL": urls})


def test_a_wrong_redis_url_is_shown_without_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        load({"REDIS_URL": "redis://user:se@cret@h:port/0"})
    assert "cret" not in str(caught.value)
    assert "@h:port/0" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("CRAWL_MAX_RETRY", "did you mean CRAWL_MAX_RETRIES?"),
        ("CRAWL_ALLOW_NETWORK", "did you mean CRAWL_ALLOW_NETWORKS?"),
        ("CRAWL_SOURCE", "did you mean CRAWL_SOURCES?"),
        ("CRAWL_ZZZZZZZZZZZZZZZZ", "docs/settings.md"),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        load({name: "1"})
    assert hint in str(caught.value)


def test_other_setting_names_are_ignored() -> None:
    assert load({"CRAWLERA_ENABLED": True, "CONCURRENT_REQUESTS": "x"}) == load({})


@pytest.mark.parametrize("value", [True, "True", "true", "1", 1])
def test_a_shared_frontier_is_never_flushed_at_the_start(value: Any) -> None:
    with pytest.raises(ConfigError, match="SCHEDULER_FLUSH_ON_START"):
        load({"SCHEDULER_FLUSH_ON_START": value})
    load({"SCHEDULER_FLUSH_ON_START": False})


def test_the_environment_gives_our_settings_and_whatever_looks_like_one() -> None:
    given = {
        "REDIS_URL": "redis://h",
        "CRAWL_MAX_RETRIES": "2",
        "CRAWL_TYPO": "x",
        "AWS_ENDPOINT_URL": "",
        "PATH": "/bin",
        "SCHEDULER": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    taken = {"REDIS_URL": "redis://h", "CRAWL_MAX_RETRIES": "2", "CRAWL_TYPO": "x", "AWS_ENDPOINT_URL": ""}
    assert environment(given) == taken


def test_the_environment_overrides_the_settings_file_and_s_overrides_both(scrapy: Scrapy) -> None:
    get = ("settings", "--get", "DOWNLOAD_MAXSIZE")
    assert scrapy(*get).stdout == "50000000\n"
    assert scrapy(*get, DOWNLOAD_MAXSIZE="7").stdout == "7\n"
    assert scrapy(*get, "-s", "DOWNLOAD_MAXSIZE=8", DOWNLOAD_MAXSIZE="7").stdout == "8\n"


def test_a_command_stops_at_a_bad_value_from_either_place(scrapy: Scrapy) -> None:
    done = scrapy("stats", CRAWL_MAX_RETRIES="many")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "scrapy stats: CRAWL_MAX_RETRIES='many' must be a whole number from 0 to 100\n"
    assert scrapy("stats", "-s", "CRAWL_MAX_RETRIES=1", CRAWL_MAX_RETRIES="many").returncode == 0
    done = scrapy("stats", CRAWL_MAX_RETRY="1")
    assert done.returncode == 1
    assert done.stderr.startswith("scrapy stats: CRAWL_MAX_RETRY is not a crawlproject setting: did you mean ")


@pytest.mark.parametrize(
    "command", [("check",), ("fetch", "http://museum.example/"), ("shell",)], ids=lambda c: c[0]
)
def test_so_do_scrapys_own_beside_the_crawl(scrapy: Scrapy, command: tuple[str, ...]) -> None:
    done = scrapy(*command, CRAWL_MAX_RETRIES="many")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    sentence = f"scrapy {command[0]}: CRAWL_MAX_RETRIES='many' must be a whole number from 0 to 100"
    assert sentence in done.stderr.splitlines()


def test_the_user_agent_says_who_we_are_and_how_to_reach_the_operator() -> None:
    assert load({}).user_agent == f"crawlproject/{__version__}"
    contact = "mailto:bot@example.org"
    assert load({"CRAWL_CONTACT": contact}).user_agent == f"crawlproject/{__version__} (+{contact})"


def test_the_project_folder_is_that_of_the_nearest_scrapy_cfg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "project" / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert project_dir() == deep
    (tmp_path / "scrapy.cfg").touch()
    assert project_dir() == tmp_path
    (tmp_path / "project" / "scrapy.cfg").touch()
    assert project_dir() == tmp_path / "project"
