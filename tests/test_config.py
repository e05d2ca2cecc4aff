"""Settings: what is accepted, what stops the start, and which of several sources wins."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from crawlproject import plugins
from crawlproject.config import RESOLVER, SETTINGS, check_guarded, environment, load, project_dir
from crawlproject.errors import ConfigError
from crawlproject.models import OPT_OUTS
from tests.conftest import Scrapy

# Of each setting: what may be given and what is read of it, and what is refused.
Bounds = tuple[list[tuple[Any, Any]], list[Any]]

WHOLE = {  # from, to
    "DOWNLOAD_MAXSIZE": (1, None),
    "CRAWL_SHARDS": (1, 256),
    "CRAWL_MAX_RETRIES": (0, 100),
    "CRAWL_FRONTIER_HIGH_WATER": (4, None),
    "CRAWL_OVERFLOW_MAXLEN": (1, None),
    "CRAWL_PAGES_BUDGET_MAX": (0, 10**12),
    "CRAWL_STREAM_MAXLEN": (1, None),
    "CRAWL_MAX_PIXELS": (1, None),
    "CRAWL_THUMBNAIL_QUALITY": (1, 95),
    "CRAWL_DECODE_PROCESSES": (1, 64),
}
NUMBERS = {  # from (or above it, where that is refused), and to
    "MAX_IDLE_TIME_BEFORE_CLOSE": ("0", "-1"),
    "DOWNLOAD_TIMEOUT": ("0.1", "0"),
    "CRAWL_PAGES_REVISIT": ("0", "2592001"),
    "CRAWL_RETRY_DELAY": ("0.001", "0"),
    "CRAWL_HEARTBEAT_TIMEOUT": ("1", "0.9"),
    "CRAWL_DECODE_TIMEOUT": ("0.5", "0"),
    "CRAWL_CIRCUIT_ERRORS": ("1", "1.1"),
    "CRAWL_PAGES_DELAY": ("86400", "86401"),
    "CRAWL_SHUTDOWN_GRACE": ("0", "-1"),
}
CHOICES = {
    "CRAWL_REDIS_WAIT": ("forwarded", "all"),
    "CRAWL_PAGES_IMAGES": ("licensed", "all", "none"),
    "CRAWL_PAGES_LINKS": ("none", "event"),
    "CRAWL_UNKNOWN_SOURCES": ("minimum", "refuse"),
    "CRAWL_SOURCE_TRUST": ("catalogue", "hosts"),
    "CRAWL_EVENTS_UNREAD": ("keep", "drop"),
    "CRAWL_THUMBNAIL_MODE": ("keep_ratio_largest", "keep_ratio", "center_crop", "border"),
    "CRAWL_THUMBNAIL_FORMAT": ("JPEG", "WebP"),
    "CRAWL_TLS_FAILURES": ("refuse", "record"),
    "CRAWL_LOG_FORMAT": ("text", "json"),
}
TEXTS = ("AWS_ENDPOINT_URL", "CRAWL_SOURCES", "CRAWL_EXCLUDE")
STORES = ("CRAWL_KEEP_ORIGINALS",)

BOUNDS: dict[str, Bounds] = {
    **{
        name: (
            [(low, low), (f" {high or low + 1_000:_} ", high or low + 1_000)],
            [low - 1, "", "1.5", True, *([] if high is None else [high + 1])],
        )
        for name, (low, high) in WHOLE.items()
    },
    **{name: ([(good, float(good))], [bad, "", "nan", "inf"]) for name, (good, bad) in NUMBERS.items()},
    **{name: ([(one, one) for one in allowed], ["", allowed[0].title(), 1]) for name, allowed in CHOICES.items()},
    **dict.fromkeys(TEXTS, ([("https://h/c", "https://h/c"), ("", None)], [])),
    **dict.fromkeys(STORES, ([("", None), ("/a/b", "/a/b"), ("s3://b/p/", "s3://b/p/")], ["s3://b", "gs://b/"])),
    "REDIS_URL": (
        [(" rediss://u:p@h ", "rediss://u:p@h"), ("unix:///tmp/r.sock", "unix:///tmp/r.sock"), (None, None)],
        ["h:6379", "http://h", "redis:/", "redis://h:port", "redis://[::1", 6379, "redis://h redis+cluster://h"],
    ),
    "IMAGES_STORE": (
        [(Path("/a"), "/a"), ("file:///a", "file:///a"), ("s3://b/p/q/", "s3://b/p/q/")],
        ["", " ", "s3://b/p", "s3:///p/", "ftp://h/"],
    ),
    "CRAWL_SHARD": ([("", ()), ([0, "0"], (0,)), (0, (0,))], ["-1", "256", "0;1"]),
    "CRAWL_CONTACT": (
        [
            ("https://example.org/bot", "https://example.org/bot"),
            ("mailto:bot@example.org", "mailto:bot@example.org"),
            ("", None),
        ],
        [
            *("bot@example.org", "mailto:bot", "https://", "ftp://example.org", "https://example.org/ (bot)"),
            *("https://[::1", "https://example.org/\r\nX-Evil: 1"),
        ],
    ),
    "CRAWL_NAMESPACE": (
        [("{a}", "{a}"), ("A.b_c-1", "A.b_c-1"), ("x" * 64, "x" * 64)],
        ["", "a b", "a:b", "ä", "x" * 65, "a\n", ".", ".."],
    ),
    "CRAWL_FORMATS": (
        [("psd, Jpeg2000,,JPEG,", ("JPEG", "JPEG2000", "PSD")), (["PNG", "GIF", "PNG"], ("PNG", "GIF"))],
        ["", " , ", "JPG", "jpeg;png", "all", True],
    ),
    "CRAWL_THUMBNAIL_SIZES": (
        [(640, (640,)), (" 640, 256,", (640, 256)), ((16, 2048), (16, 2048))],
        ["", "15", "640,2049", "640,640", "16,17,18,19,20,21,22,23,24", "large", True],
    ),
    "CRAWL_ANALYSES": (
        [("", ()), (" a.b_1:c , d:e,", ("a.b_1:c", "d:e")), (["a:b"], ("a:b",))],
        ["a", "a:", ":b", "a:b:c", "a-b:c", "a:b,c:b", ",".join(f"a:f{n}" for n in range(17)), True],
    ),
    "CRAWL_PAGES_MEDIA": (
        [("", ()), (" Video, audio,", ("video", "audio")), (["audio"], ("audio",))],
        ["image", "audio;video", "all", 5],
    ),
    "CRAWL_OPT_OUTS": (
        [
            (" , ", ()),
            ("NoIndex, content-usage:train-ai,", ("noindex", "content-usage:train-ai")),
            (["tdm-reservation"], ("tdm-reservation",)),
        ],
        ["all", "noai;noindex", "X-Robots-Tag: noai", 5],
    ),
    "CRAWL_STRAIN": ([("True", True), ("no", False)], ["", "2"]),
    "CRAWL_THUMBNAIL_ENLARGE": ([("True", True), ("no", False)], ["", "2"]),
    "CRAWL_ALLOW_NETWORKS": (
        [("", ()), ("10.1.2.3, fd00::/8", (ip_network("10.1.2.3/32"), ip_network("fd00::/8")))],
        ["localhost", "127.0.0.1/8", "10.0.0.0/8;10.1.0.0/16", 5],
    ),
    "CRAWL_DENY_NETWORKS": (
        [
            (["192.0.2.1"], (ip_network("192.0.2.1/32"),)),
            ("::ffff:203.0.114.0/120, ::ffff:8.8.8.8", (ip_network("203.0.114.0/24"), ip_network("8.8.8.8"))),
            ("::ffff:0:0/96, 64:ff9b::/96", (ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96"))),
        ],
        ["64:ff9b::203.0.114.0/120", "example.org", "203.0.113.1/24"],
    ),
    "CRAWL_NAT64_PREFIXES": (
        [("64:ff9b:1::/48,2001:db8:64::/96", (ip_network("64:ff9b:1::/48"), ip_network("2001:db8:64::/96")))],
        ["2001:db8::/33", "2001:db8::1", "10.0.0.0/8", "2001:db8::1/96", 5],
    ),
    "CRAWL_ALLOW_PORTS": (
        [("1, 65535,", (1, 65535)), ([8000, "8001"], (8000, 8001)), (8080, (8080,))],
        ["0", "65536", "http", "80;81"],
    ),
    "CRAWL_DNS_SERVERS": (
        [("9.9.9.9, 127.0.0.1:5353", ("9.9.9.9", "127.0.0.1:5353")), ("[::1]:53", ("[::1]:53",))],
        ["localhost", "dns.example.org:53", "127.0.0.1:65536", 53],
    ),
}
FIELDS = {name: setting["field"] for name, setting in SETTINGS.items()}


def test_the_ipv4_network_is_named_for_one_behind_nat64() -> None:
    with pytest.raises(ConfigError, match=r"not 64:ff9b::cb00:7200/120: 203\.0\.114\.0/24 closes"):
        load({"CRAWL_DENY_NETWORKS": "64:ff9b::cb00:7200/120"})


def test_a_worker_serves_shards_that_there_are() -> None:
    assert load({"CRAWL_SHARDS": "4", "CRAWL_SHARD": "0, 3"}).shard == (0, 3)
    with pytest.raises(ConfigError, match="CRAWL_SHARD=4 is none of CRAWL_SHARDS=4"):
        load({"CRAWL_SHARDS": "4", "CRAWL_SHARD": "3,4"})


def test_links_are_kept_with_pages_where_pages_are_kept() -> None:
    with pytest.raises(ConfigError, match="CRAWL_PAGES_LINKS=warc needs CRAWL_PAGES_STORE"):
        load({"CRAWL_PAGES_LINKS": "warc"})


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
    assert message.partition(" must be ")[2]  # the remedy


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


def test_a_format_whose_plugin_is_deleted_is_refused_with_the_place_of_plugins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "offered", lambda what: {})
    words = r"^CRAWL_FORMATS='HEIF' must be .* plug-ins add \(crawlproject/contrib/formats\); not HEIF$"
    with pytest.raises(ConfigError, match=words):
        load({"CRAWL_FORMATS": "HEIF"})


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
        ("CRAWL_ZZZZZZZZZZZZZZZZ", "docs/settings.md"),
    ],
)
def test_an_unknown_name_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        load({name: "1"})
    assert hint in str(caught.value)


@pytest.mark.parametrize("value", [True, "True", "true", "1", 1])
def test_a_shared_frontier_is_never_flushed_at_the_start(value: Any) -> None:
    with pytest.raises(ConfigError, match="SCHEDULER_FLUSH_ON_START"):
        load({"SCHEDULER_FLUSH_ON_START": value})
    load({"SCHEDULER_FLUSH_ON_START": False})


@pytest.mark.parametrize(
    "setting",
    [
        {"HTTPPROXY_ENABLED": True},
        {"TWISTED_DNS_RESOLVER": "scrapy.resolver.CachingThreadedResolver"},
        {"TWISTED_REACTOR_ENABLED": "False"},
        {"DOWNLOAD_DELAY": "0.5"},
        {"AUTOTHROTTLE_ENABLED": 1},
    ],
)
def test_no_setting_of_scrapy_leads_past_the_address_guard_or_holds_requests_up(setting: dict[str, Any]) -> None:
    check_guarded({"TWISTED_DNS_RESOLVER": RESOLVER})
    with pytest.raises(ConfigError, match=next(iter(setting))):
        check_guarded({"TWISTED_DNS_RESOLVER": RESOLVER} | setting)


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
    said = "is not a crawlproject setting: did you mean CRAWL_MAX_RETRIES?\n"
    assert done.stderr == f"scrapy stats: CRAWL_MAX_RETRY (an environment variable) {said}"
    assert scrapy("stats", "-s", "CRAWL_MAX_RETRY=1").stderr == f"scrapy stats: CRAWL_MAX_RETRY {said}"


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
