"""Every request says who we are."""

from __future__ import annotations

from scrapy import Request
from scrapy.utils.test import get_crawler

from crawlproject import __version__
from crawlproject.middlewares.user_agent import UserAgentMiddleware


def test_the_user_agent_says_who_we_are_whatever_the_spider_says() -> None:
    crawler = get_crawler(settings_dict={"CRAWL_CONTACT": "mailto:bot@example.org", "USER_AGENT": "Mozilla/5.0"})
    request = Request("https://museum.org/", headers={"User-Agent": "Mozilla/5.0"})
    UserAgentMiddleware.from_crawler(crawler).process_request(request)
    said = f"crawlproject/{__version__} (+mailto:bot@example.org)"
    assert request.headers["User-Agent"] == said.encode()
