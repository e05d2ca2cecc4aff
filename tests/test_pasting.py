"""Commands in texts can be copied into a shell, whatever the names in them are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from crawlproject import config
from crawlproject.ingest.feeds import why_held
from crawlproject.sources.names import source_name
from crawlproject.state.client import State
from crawlproject.status.source_status import sample_sources
from crawlproject.texts import printable, scrapy_command
from tests.conftest import ROOT
from tests.pasting import HOSTILE, pasted
from tests.state.calls.calls import within


def seen(name: str) -> str:
    return printable(name, len(name))


def test_a_text_that_is_not_quoted_is_found_out() -> None:
    with pytest.raises(AssertionError):
        pasted("halted until scrapy resume $(touch owned)")
    assert pasted("halted until scrapy resume museum") == [["resume", "museum"]]


@given(st.lists(st.text(), max_size=3), st.lists(st.text(min_size=1), max_size=3))
def test_a_shell_takes_each_word_as_it_is(words: list[str], names: list[str]) -> None:
    ends = ["--"] if any(name.startswith("-") for name in names) else []
    shown = [*map(seen, words), *ends, *map(seen, names)]
    assert pasted(scrapy_command("halt", *words, of=names)) == [["halt", *shown]]


async def test_what_redis_holds_of_others_runs_nothing(state: State) -> None:
    await state.redis.sadd(state.keys.halted, *HOSTILE)
    for name in HOSTILE:
        await state.redis.rpush(state.keys.queue_of + name, "x")
    reasons = {one.source: one.reason async for one in sample_sources(state, HOSTILE)}
    for name in HOSTILE:
        ends = ["--"] if name.startswith("-") else []
        assert pasted(reasons[name]) == [["resume", *ends, seen(name)]]


async def test_none_of_it_gets_into_metrics_and_alerts(state: State) -> None:
    await state.redis.sadd(state.keys.halted, "museum", *HOSTILE)
    await state.redis.hset(state.keys.rates, mapping=dict.fromkeys(["museum", *HOSTILE], "1"))
    overview = await within(state.scripts, dead_maxlen=9).collect(timeout=30.0, most=99)
    assert overview.sources == ["museum"]


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_holds_seeds_back_runs_nothing(redis_url: str, name: str) -> None:
    settings = {"REDIS_URL": redis_url, "CRAWL_OVERFLOW_MAXLEN": 2}
    one = State(config.load(settings), "images")
    await one.open()
    redis: Any = one.redis
    try:
        await redis.hset(one.keys.hosts, "museum.org", name)  # which makes it no source
        for source in (name, "museum.org"):
            await redis.rpush(f"{one.keys.overflow_of}0:{source}", "x", "x")
        await redis.hset(one.keys.counters, "overflow", 2)
        assert pasted(await why_held(one, ["http://museum.org/a"])) == [["sources", "museum.org"]]
    finally:
        await one.close()


# Those that are written down


def alerts() -> Iterator[str]:
    for group in yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["annotations"]["description"].replace("crawlproject ", "scrapy ")  # as `pasted` has them


@pytest.mark.parametrize("name", ["museum", "žluťoučký", "a:b.c_d-e", ":x", "2001:db8::1"])
def test_the_commands_of_alerts_take_every_name_as_one_word(name: str) -> None:
    found = [text for text in alerts() if "$labels.source" in text]
    assert len(found) >= 3
    for text in found:
        shown = text.replace("{{ $labels.source }}", source_name(name))
        assert any(word in {name, f"--source={name}"} for call in pasted(shown) for word in call), text
        for before in re.findall(r"scrapy [^.]*?(\S*)\{\{", text):
            assert before in {"'", "--source='", "--spider='"}, text
