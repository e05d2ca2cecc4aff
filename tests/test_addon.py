"""The add-on: crawlproject in a Scrapy project with settings of its own, moved from scrapy-redis."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from scrapy.addons import AddonManager
from scrapy.settings import Settings

from crawlproject.plugins import scrapys_settings
from tests.conftest import ROOT, ran
from tests.sites import Handler, served

ADDON = {"crawlproject.Addon": 0}

SCRAPY_REDIS = """
SCHEDULER = "scrapy_redis.scheduler.Scheduler"
DUPEFILTER_CLASS = "scrapy_redis.dupefilter.RFPDupeFilter"
"""

MOVED = """
ADDONS = {"crawlproject.Addon": 0}
CRAWL_CONTACT = "mailto:you@example.org"
ITEM_PIPELINES = {"moved.pipelines.MovedPipeline": 300}
FEEDS = {"items.jsonl": {"format": "jsonlines"}}
BOT_NAME = "mine"
"""

PIPELINES = """
class MovedPipeline:
    def process_item(self, item):
        return {**item, "by": "my pipeline"}
"""

SPIDER = """
from scrapy_redis.spiders import RedisSpider


class Pushed(RedisSpider):
    name = "pushed"

    def parse(self, response):
        yield {"url": response.url, "agent": response.text}
        yield response.follow("/next")
"""


class Site(Handler):
    """Every page tells the User-Agent."""

    def get(self) -> None:
        self.answer(404 if self.path == "/robots.txt" else 200, self.headers["User-Agent"].encode())


def applied(**values: Any) -> Settings:
    """Return the settings of a project after the add-ons."""
    settings = Settings({"ADDONS": ADDON, **values}, priority="project")
    AddonManager.load_pre_crawler_settings(settings)
    return settings


def test_a_projects_own_values_win_and_components_are_merged() -> None:
    own = {"mine.Pipeline": 50, "crawlproject.pipelines.thumbnail.ThumbnailPipeline": None}
    settings = applied(BOT_NAME="mine", LOG_LEVEL="ERROR", ITEM_PIPELINES=own, EXTENSIONS={"mine.Extension": 1})
    assert settings["BOT_NAME"] == "mine"
    assert settings["LOG_LEVEL"] == "ERROR"
    assert dict(settings["ITEM_PIPELINES"]) == {**scrapys_settings().get("ITEM_PIPELINES", {}), **own}
    assert dict(settings["EXTENSIONS"]) == {"mine.Extension": 1}


def test_everything_else_is_as_in_crawlprojects_own_settings() -> None:
    ours, settings = Settings(), applied()
    ours.setmodule("crawlproject.settings")
    names = ours.keys() - {"BOT_NAME", "SPIDER_MODULES", "NEWSPIDER_MODULE", "COMMANDS_MODULE", "ADDONS"}
    for name in names - {"DEFAULT_REQUEST_HEADERS"}:  # whose Accept-Language stays
        value = settings[name]
        assert (dict(value) if isinstance(value, dict | type(settings)) else value) == ours[name], name
    assert settings["DEFAULT_REQUEST_HEADERS"]["Accept"] == "*/*"
    before = dict(settings)
    AddonManager.load_pre_crawler_settings(settings)
    assert dict(settings) == before


def test_the_environment_is_stronger_than_the_project_and_the_command_line_than_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CRAWL_MAX_RETRIES", "7")
    monkeypatch.setattr("crawlproject.settings.CRAWL_MAX_RETRIES", "7", raising=False)  # which is imported once
    assert applied(CRAWL_MAX_RETRIES=3)["CRAWL_MAX_RETRIES"] == "7"
    settings = Settings({"ADDONS": ADDON}, priority="project")
    settings.set("CRAWL_MAX_RETRIES", "5", priority="cmdline")
    AddonManager.load_pre_crawler_settings(settings)
    assert settings["CRAWL_MAX_RETRIES"] == "5"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"SCHEDULER": "scrapy_redis.scheduler.Scheduler"}, r"SCHEDULER \(scrapy_redis.*leave it out"),
        ({"TWISTED_REACTOR": None}, r"TWISTED_REACTOR \(None\) must be crawlproject's own: leave it out"),
        ({"DOWNLOAD_DELAY": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}, "DOWNLOAD_DELAY=1 and CONC.*leave them out"),
        ({"REDIS_HOST": "there"}, "set REDIS_URL=redis://there:6379"),
        ({"ITEM_PIPELINES": {"scrapy_redis.pipelines.RedisPipeline": 9}}, "RedisPipeline needs REDIS_URL"),
        ({"REDIS_START_URLS_AS_SET": True}, "REDIS_START_URLS_AS_SET.*lpush"),
        ({"CRAWL_CONTAKT": "x"}, "did you mean CRAWL_CONTACT"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SystemExit, match=sentence):
        applied(**values)


class Project:
    """What `startproject moved` makes, with the spider and the pipeline of a user of scrapy-redis."""

    def __init__(self, folder: Path, environ: dict[str, str], maker: str = "scrapy") -> None:
        self.folder, self.environ = folder / "moved", environ | {"PYTHONPATH": str(ROOT)}
        self.made = self.run(maker, "startproject", "moved", cwd=folder).stdout
        self.module = self.folder / "moved"
        (self.module / "pipelines.py").write_text(PIPELINES)
        (self.module / "spiders" / "pushed.py").write_text(SPIDER)

    def settings(self, more: str, without: tuple[str, ...] = ()) -> None:
        lines = (self.module / "settings.py").read_text().splitlines()
        kept = [line for line in lines if not line.startswith(without or "\0")]
        (self.module / "settings.py").write_text("\n".join([*kept, more]))

    def run(self, *words: str, cwd: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return ran([sys.executable, "-m", *words], cwd or self.folder, self.environ, stdin)


@pytest.fixture
def project(tmp_path: Path, environment: dict[str, str]) -> Project:
    return Project(tmp_path, environment)


@pytest.fixture
def site() -> Iterator[str]:
    with served(Site) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def test_a_project_of_scrapy_redis_moves_with_its_spider_pipeline_and_feeds(
    project: Project, site: str, client: redis.Redis
) -> None:
    (project.folder / "sources.json").write_text(
        json.dumps([{"source_name": "site", "image_count": 500_000_000, "hosts": ["127.0.0.1"]}])
    )
    project.settings(MOVED, without=("DOWNLOAD_DELAY", "CONCURRENT_REQUESTS_PER_DOMAIN"))
    client.lpush("pushed:start_urls", f"{site}/1")
    options = ("-s", "CRAWL_SOURCES=sources.json", "-s", "MAX_IDLE_TIME_BEFORE_CLOSE=1")
    done = project.run("scrapy", "crawl", "pushed", *options)
    assert done.returncode == 0, done.stderr
    assert "(bot: mine)" in done.stderr
    assert "Deprecat" not in done.stderr
    [said] = project.run("crawlproject", "feed", "--spider", "images", "-").stderr.splitlines()[-1:]
    assert "--spider images: this project has no such spider, only pushed" in said
    fed = project.run("crawlproject", "feed", "-", stdin=f"{site}/2\n{site}/1\n")
    assert fed.stdout == "2 seeds fed, 0 rejected\n", fed.stderr
    done = project.run("crawlproject", "crawl", "pushed", *options)
    assert done.returncode == 0, done.stderr
    items = [json.loads(line) for line in (project.folder / "items.jsonl").read_text().splitlines()]
    assert sorted(item["url"] for item in items) == [f"{site}/1", f"{site}/2", f"{site}/next"]
    assert {item["by"] for item in items} == {"my pipeline"}
    assert all(item["agent"].startswith("crawlproject") for item in items)


def test_a_new_project_crawls_politely_with_scrapy_and_with_crawlproject(
    tmp_path: Path, environment: dict[str, str], site: str, client: redis.Redis
) -> None:
    project = Project(tmp_path, environment, maker="crawlproject")
    assert project.made.endswith("cd moved\n     python -m crawlproject genspider example example.com\n")
    project.run("crawlproject", "genspider", "shop", f"{site}/1")
    spider = project.module / "spiders" / "shop.py"
    spider.write_text(spider.read_text().replace("pass", 'yield {"agent": response.text}'))
    for program in ("scrapy", "crawlproject"):
        file = project.folder / f"{program}.jsonl"
        done = project.run(program, "crawl", "shop", "-o", str(file))
        assert done.returncode == 0, done.stderr
        assert json.loads(file.read_text())["agent"].startswith("crawlproject")
    [said, *_] = project.run("crawlproject", "feed", "-").stderr.splitlines()[-1:]
    assert said.endswith("expected --spider with one of pushed, shop")
    assert project.run("crawlproject", "exclude", "shop.example").returncode == 0  # for all spiders
    settings = (project.module / "settings.py").read_text()
    project.settings("DOWNLOAD_DELAY = 1")
    for program in ("scrapy", "crawlproject"):
        [*_, said] = project.run(program, "crawl", "shop").stderr.splitlines()
        assert ": moved/settings.py: DOWNLOAD_DELAY=1 would delay requests" in said
        assert said.endswith("crawlproject rate")  # plain Scrapy has no such command
    (project.module / "settings.py").write_text(settings)
    [*_, said] = project.run("scrapy", "crawl", "shop", "-s", "DOWNLOAD_DELAY=2").stderr.splitlines()
    assert said.startswith("scrapy: DOWNLOAD_DELAY=2 would delay")


def test_half_a_move_ends_in_a_sentence(project: Project) -> None:
    project.settings(
        SCRAPY_REDIS.replace(
            "scrapy_redis.scheduler.Scheduler", "crawlproject.frontier.scheduler.FrontierScheduler"
        )
    )
    done = project.run("scrapy", "crawl", "pushed")
    assert done.returncode == 1
    assert 'replace them with ADDONS = {"crawlproject.Addon": 0}' in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    project.settings(MOVED.replace("CRAWL_CONTACT", "#"), without=("SCHEDULER", "DUPEF", "DOWNLOAD", "CONCURRENT"))
    del project.environ["CRAWL_CONTACT"]
    done = project.run("scrapy", "crawl", "pushed")
    assert (done.returncode, done.stderr.splitlines()[-1][:32]) == (1, "scrapy: CRAWL_CONTACT is not set")
