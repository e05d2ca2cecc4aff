"""What a worker does about the store: it spills for all frontiers that it fills, or says that others do."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from scrapy.exceptions import NotConfigured
from scrapy.settings import Settings
from scrapy.utils.defer import maybe_deferred_to_future

from crawlproject.contrib.overflow.plugin import check_store
from crawlproject.contrib.overflow.spilling import OverflowStore
from crawlproject.errors import ConfigError
from crawlproject.frontier.scheduler import FrontierScheduler
from tests.conftest import scheduler_for, stop_tasks
from tests.frontier.tails import counters, discover
from tests.state.calls.calls import lead
from tests.waiting import until_async


async def opened(redis_url: str, **settings: Any) -> FrontierScheduler:
    """Return the scheduler of a worker that does nothing by itself; its spider finds requests for another one."""
    scheduler = scheduler_for(redis_url, CRAWL_PAGES_BUDGET_MAX="0", **settings)
    spider = scheduler.crawler.spider
    assert spider is not None
    spider.finds_for = ("other",)  # type: ignore[attr-defined]
    await maybe_deferred_to_future(scheduler.open(spider))
    await stop_tasks(scheduler)
    await lead(scheduler.state)
    return scheduler


async def closed(scheduler: FrontierScheduler) -> None:
    await maybe_deferred_to_future(scheduler.close("finished"))
    await scheduler.state.close()


async def test_a_worker_spills_what_it_finds_for_whichever_spider_and_others_without_a_store_say_so(
    redis_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await opened(redis_url, CRAWL_OVERFLOW_STORE=str(tmp_path / "packs"))
    states = (worker.state, worker.state.beside("other"))
    for state in states:
        await discover(state, 200)
    store = OverflowStore.from_crawler(worker.crawler)
    store.spider_opened()

    async def are_spilled() -> bool:
        return all([(await counters(state))[2] > 100 for state in states])

    await until_async(are_spilled)
    await store.spider_closed()
    await closed(worker)

    caplog.set_level(logging.WARNING)
    without = await opened(redis_url)
    store = OverflowStore.from_crawler(without.crawler)
    store.spider_opened()
    await until_async(lambda: "set CRAWL_OVERFLOW_STORE as that has it" in caplog.text)
    await store.spider_closed()
    await closed(without)


def test_a_store_that_cannot_be_opened_is_refused_before_anything_starts(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"CRAWL_OVERFLOW_STORE={tmp_path}/file/x cannot be used: NotADirectory"):
        check_store(Settings({"CRAWL_OVERFLOW_STORE": f"{tmp_path}/file/x"}))
    check_store(Settings({"CRAWL_OVERFLOW_STORE": f"{tmp_path}/store"}))
    check_store(Settings())
    with pytest.raises(ConfigError, match="CRAWL_OVERFLOW_STORE"):
        check_store(Settings({"CRAWL_OVERFLOW_STORE": "s3://b"}))
    crawler = scheduler_for(
        redis_url, CRAWL_OVERFLOW_STORE=f"{tmp_path}/file/x"
    ).crawler  # no check, as with scrapyd
    with pytest.raises(OSError, match="Not a directory"):
        OverflowStore.from_crawler(crawler)


def test_a_shell_leaves_the_store_alone(redis_url: str) -> None:
    with pytest.raises(NotConfigured):
        OverflowStore.from_crawler(scheduler_for(redis_url, FRONTIER_ALONE=True).crawler)
