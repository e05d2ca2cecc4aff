"""What `scrapy top` shows of a snapshot, cell by cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from crawlproject.commands.top import SORTS as OFFERED
from crawlproject.state.scripts import PARSE_BOUNDS, Feeding, Pause
from crawlproject.status.snapshot import Counters, InFlight, Snapshot, Specific, snapshot
from crawlproject.terminal.table import SORTS, count, cut, digits, header, ordered, sources_table, sparkline
from tests.status.test_snapshot import BUCKETS, sample_at, source

PARSES = len(PARSE_BOUNDS) + 1


def shown(*sources: Any, **more: Any) -> Snapshot:
    """Return what happened within 10 s from nothing to `sources`."""
    made = snapshot(Counters.of(sample_at(1.0)), sample_at(11.0, *sources, **more))
    assert made is not None
    return made


def rendered(*renderables: Any, width: int = 200, **more: Any) -> str:
    console = Console(width=width, **more)
    with console.capture() as captured:
        for one in renderables:
            console.print(one)
    return captured.get()


def specific(**more: Any) -> Specific:
    (one,) = shown(source("a", **more)).specific.values()
    return one


CROWD = {
    "halted": specific(state="halted"),
    "open": specific(state="open"),
    "probed": specific(state="half_open"),
    "slowed": specific(effective_rate=1.0),
    "fast": specific(successful=500),
    "long": specific(queued=7000, eta_s=60.0),
    "lossy": specific(failed=9, eta_s=90.0),
    "quiet": specific(),
}


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("trouble", ["halted", "open", "probed", "slowed", "fast", "lossy", "long", "quiet"]),
        ("rate", ["fast", "lossy", "long", "halted"]),
        ("work", ["long", "fast"]),
        ("failed", ["lossy", "fast"]),
        ("eta", ["lossy", "long"]),
        ("name", ["fast", "halted", "long", "lossy"]),
    ],
)
def test_each_order_has_what_it_is_for_first(sort: str, first: list[str]) -> None:
    assert [name for name, _ in ordered(CROWD, sort)][: len(first)] == first


def test_the_command_offers_the_orders_that_there_are() -> None:
    assert tuple(SORTS) == OFFERED


def test_what_never_ends_takes_longest() -> None:
    rows = ordered(CROWD | {"never": replace(CROWD["long"], eta_s=None)}, "eta")
    assert rows[0][0] == "never"


def test_trouble_leaves_half_of_the_room_to_what_goes_well() -> None:
    rows = ordered(CROWD, "trouble")
    assert [name for name, _ in cut(rows, 6, "trouble")] == ["halted", "open", "probed", "fast", "lossy", "long"]
    assert [name for name, _ in cut(rows, 3, "trouble")] == ["halted", "fast", "lossy"]
    assert cut(rows, 8, "trouble") == rows
    assert [name for name, _ in cut(rows[:5], 4, "trouble")] == ["halted", "open", "probed", "fast"]
    assert cut(rows, 0, "trouble") == []
    assert [name for name, _ in cut(ordered(CROWD, "name"), 2, "name")] == ["fast", "halted"]


def test_a_row_says_how_its_source_stands() -> None:
    one = source("museum", rate_limit=200.0, effective_rate=50.0, reason="by size, slowed to 25 % by status 429",
                 queued=1_234_567, delayed=3, in_flight=4, successful=100, failed=10, eta_s=61.2,
                 fetches=[0] * 7 + [100] + [0] * 10)  # fmt: skip
    rows = ordered(shown(one).specific, "trouble")
    head, row = rendered(sources_table(rows, 200)).splitlines()
    assert head.split() == [
        *("source", "state", "limit", "allowed", "seen", "queued", "delayed", "in", "flight", "done", "failed"),
        *("eta", "fetch", "p50", "p99", "last", "50", "reason"),
    ]
    assert row.split() == [
        *("museum", "slowed", "200", "50", "11", "1.23M", "3", "4", "100", "10", "0:01:02"),
        *("0.5", "s", "0.6", "s", "200:3"),
        *["by", "size,", "slowed", "to", "25", "%", "by", "status", "429"],
    ]


def test_of_pages_a_row_has_the_budget_of_its_source() -> None:
    budget = {"admitted": 240, "poor": 12, "allowed": 1320}
    sources = (
        source("museum", budget=budget),
        source("archive", budget=budget | {"allowed": None}),
        source("rests"),
    )
    rows = ordered(shown(*sources).specific, "name")
    head, *lines = rendered(sources_table(rows, 200)).splitlines()
    end = head.index("budget") + len("budget")
    assert [line[:end].split()[-1] for line in lines] == ["240", "240/1320", "0"]  # of the last one what is queued
    assert "budget" not in rendered(sources_table(rows[2:], 200))
    assert "budget" not in rendered(sources_table(rows, 60))


def test_states_are_loud_without_colours_too() -> None:
    rows = ordered(CROWD, "trouble")
    lines = rendered(sources_table(rows, 200)).splitlines()[1:]
    assert [line.split()[1] for line in lines[:5]] == ["HALTED", "OPEN", "HALF", "slowed", "closed"]
    coloured = rendered(sources_table(rows, 200), force_terminal=True, color_system="standard", no_color=False)
    assert "\x1b[1;31mhalted" in coloured
    assert "\x1b[33mslowed" in coloured
    plain = rendered(sources_table(rows, 200), force_terminal=True, color_system="standard", no_color=True)
    assert "31m" not in plain


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 160])
def test_it_fits_where_it_is_shown(width: int) -> None:
    sources = [source(f"{'long' * 12}-{number}", queued=number * 10**6, eta_s=1e5, reason="why " * 40)
               for number in range(5)]  # fmt: skip
    made = shown(*sources, totals={"error_dns": 3, "failed": 3}, halted=["a"])
    text = rendered(
        *header(made, [1.0] * 30, width), sources_table(ordered(made.specific, "name"), width), width=width
    )
    table = text.splitlines()[-6:]
    assert max(map(len, table)) <= width
    assert all(row.startswith("longlonglong") and "…" in row for row in table[1:])
    columns = [name for name in ("state", "queued", "in flight", "reason") if name in table[0]]
    assert columns == ["state", "queued", "in flight", "reason"][: {20: 0, 40: 2, 60: 2, 80: 3}.get(width, 4)]
    if width >= 80:  # no part of the header is split
        assert all(
            word in text for word in ("0 seeds waiting", "latency p50 -, p95 -, p99 -", "1 halted", "dns 3")
        )


def test_texts_of_strangers_are_shown_as_they_are_and_do_nothing() -> None:
    names = ["[bold red]x[/]", ":bomb:", "a\x1b[2Jb\x07", "right\u202eleft", "two\nlines", "日本" * 3]
    made = shown(*(source(name, reason=f"[link=http://a]{name}") for name in names),
                 pause=Pause("paused", "\x1b]0;owned\x07 [blink]full"))  # fmt: skip
    text = rendered(*header(made, [], 200), sources_table(ordered(made.specific, "name"), 200), width=200)
    assert not any(char in text for char in "\x1b\x07\u202e")
    assert len(text.splitlines()) == 4 + 1 + len(names)
    for name in ("[bold red]x[/]", ":bomb:", "a?[2Jb?", "right?left", "two?lines", "日本日本日本"):
        assert name in text
        assert f"[link=http://a]{name}" in text
    assert "NOTHING GOES OUT: ?]0;owned? [blink]full" in text


def test_the_header_says_why_nothing_goes_out() -> None:
    why = Pause("paused", "events wait")
    assert "NOTHING GOES OUT: events wait" in rendered(*header(shown(pause=why), [], 80))
    assert "NOTHING" not in rendered(*header(shown(), [], 80))


def test_the_header_tells_how_long_whole_fetches_take_and_to_whom_requests_are_in_flight() -> None:
    fetches = [0] * BUCKETS
    fetches[7], fetches[15] = 98, 2
    one = sample_at(11.0, fetches=tuple(fetches))
    made = snapshot(Counters.of(sample_at(1.0)), replace(one, in_flight=InFlight(2170, 28, 30)))
    assert made is not None
    text = rendered(*header(made, [], 200))
    assert "fetch p50 0.5 s, p95 0.59 s, p99 22 s" in text
    assert "2170 in flight (28 sources, 30 domains)" in text


def test_the_header_of_a_crawl_of_pages_tells_what_became_of_links() -> None:
    links = {"links_admitted": 240, "links_known": 123_456, "links_over_budget": 7, "links_refused": 61}
    parses = [0] * PARSES
    parses[2] = 10
    one = sample_at(11.0, totals=links | {"pages": 120}, overflow=5000, spilled=4000, seeds=3, due=9, ready=4,
                    parses=tuple(parses), redis_bytes=12_300_000)  # fmt: skip
    made = snapshot(Counters.of(sample_at(1.0)), replace(one, spider="pages"))
    assert made is not None
    text = rendered(*header(made, [], 200))
    assert text.startswith("12 pages/s")
    assert "12376 links/s  240 admitted  123k known  7 over budget  61 refused  0 excluded" in text
    assert "3 seeds waiting  5000 beyond their sources' shares (4000 spilled)" in text
    assert "9 with work, 4 due  Redis 12.3 MB" in text
    assert "parse p50 0.0015 s, p95 0.0019 s, p99 0.002 s" in text
    assert "LOST" not in text
    assert "WITHOUT ROOM" not in text
    full = snapshot(Counters.of(sample_at(1.0)), sample_at(11.0, totals={"links_without_room": 7}))
    assert full is not None
    assert "7 WITHOUT ROOM" in rendered(*header(full, [], 200))
    lost = snapshot(Counters.of(sample_at(1.0)), sample_at(11.0, totals={"overflow_lost": 3}))
    assert lost is not None
    assert "3 LOST" in rendered(*header(lost, [], 200))


def test_the_header_of_a_crawl_of_images_says_nothing_of_links() -> None:
    text = rendered(*header(shown(), [], 200))
    assert text.startswith("0 images/s")
    assert not any(word in text for word in ("links", "parse", "beyond"))


@pytest.mark.parametrize(
    ("feeding", "text"),
    [
        (Feeding(0, 0), "ETA -  "),
        (Feeding(1, 0), "ETA -  "),
        (Feeding(1, 250_000), "ETA - + about 250k seeds being fed"),
        (Feeding(2, None), "ETA - + more being fed"),
    ],
)
def test_the_header_says_when_more_is_being_fed_than_the_eta_counts(feeding: Feeding, text: str) -> None:
    assert text in rendered(*header(shown(feeding=feeding), [], 200)).replace("\n", "  ")


def test_the_header_tells_sources_that_wait_for_somebody_from_those_that_go_on_by_themselves() -> None:
    text = rendered(*header(shown(halted=["a", "b"], halted_for_a_while=["b", "c"]), [], 200))
    assert "2 halted  1 open" in text
    assert "halted" not in rendered(*header(shown(), [], 200))


def test_rates_are_drawn_by_the_highest_of_them() -> None:
    assert sparkline([0, 1, 50, 100]) == "▁▂▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""


def test_numbers_are_short() -> None:
    assert [count(n) for n in (0, 99_999, 100_000, 999_999, 1_234_567, 5 * 10**9)] == [
        *("0", "99999", "100k", "1000k", "1.23M", "5G"),
    ]  # fmt: skip
    assert [digits(value) for value in (0, 0.2, 4.965, 24.17, 113.7, 51_234.5)] == [
        *("0", "0.2", "4.96", "24.2", "114", "51234"),
    ]  # fmt: skip
