"""What `scrapy top` shows of a snapshot, cell by cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from crawlproject.commands.top import SORTS as OFFERED
from crawlproject.state.scripts import Feeding, Pause
from crawlproject.status.snapshot import Counters, Snapshot, Specific, snapshot
from crawlproject.terminal.table import SORTS, View, count, digits
from tests.status.test_snapshot import sample_at, source


def shown(*sources: Any, **more: Any) -> Snapshot:
    """Return what happened within 10 s from nothing to `sources`."""
    made = snapshot(Counters.of(sample_at(1.0)), sample_at(11.0, *sources, **more))
    assert made is not None
    return made


def rendered(made: Snapshot, width: int = 200, sort: str = "trouble", lines: int = 0, **more: Any) -> str:
    """Return what is shown of a snapshot on a console; with `lines`, cut off at so many."""
    console, view = (
        Console(width=width, height=lines or None, **more),
        View("images of crawl", sort, cut_off=lines > 0),
    )
    view.snapshot = made
    with console.capture() as captured:
        console.print(view)
    return captured.get()


def names(made: Snapshot, sort: str) -> list[str]:
    """Return the sources in the order in which they are shown."""
    lines = rendered(made, sort=sort).splitlines()
    return [line.split()[0] for line in lines if line.split()[0] in made.specific]


def crowd(**more: Specific) -> Snapshot:
    """Return a snapshot with one source of each kind."""
    return replace(shown(), specific=CROWD | more)


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
    assert names(crowd(), sort)[: len(first)] == first


def test_the_command_offers_the_orders_that_there_are() -> None:
    assert tuple(SORTS) == OFFERED


def test_what_never_ends_takes_longest() -> None:
    assert names(crowd(never=replace(CROWD["long"], eta_s=None)), "eta")[0] == "never"


def test_a_row_says_how_its_source_stands() -> None:
    one = source("museum", rate_limit=200.0, effective_rate=50.0, reason="by size, slowed to 25 % by status 429",
                 queued=1_234_567, delayed=3, in_flight=4, successful=100, failed=10, eta_s=61.2,
                 fetches=[0] * 7 + [100] + [0] * 10)  # fmt: skip
    *_, head, row = rendered(shown(one)).splitlines()
    assert head.split() == [
        *("source", "state", "limit", "allowed", "seen", "queued", "in", "flight", "done", "failed"),
        *("eta", "last", "50", "reason"),
    ]
    assert row.split() == [
        *("museum", "slowed", "200", "50", "11", "1.23M", "4", "100", "10", "0:01:02", "200:3"),
        *["by", "size,", "slowed", "to", "25", "%", "by", "status", "429"],
    ]


def test_states_are_loud_without_colours_too() -> None:
    lines = rendered(crowd()).splitlines()[-len(CROWD) :]
    assert [line.split()[1] for line in lines[:5]] == ["HALTED", "OPEN", "HALF", "slowed", "closed"]
    coloured = rendered(crowd(), force_terminal=True, color_system="standard", no_color=False)
    assert "\x1b[1;31mhalted" in coloured
    assert "\x1b[33mslowed" in coloured
    assert "31m" not in rendered(crowd(), force_terminal=True, color_system="standard", no_color=True)


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_it_fits_where_it_is_shown(width: int) -> None:
    sources = [source(f"{'long' * 12}-{number}", queued=number * 10**6, eta_s=1e5, reason="why " * 40)
               for number in range(5)]  # fmt: skip
    made = shown(*sources, totals={"error_dns": 3, "failed": 3}, halted=["a"])
    lines = rendered(made, width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(row.startswith("long") and "…" in row and "3M" not in row[:9] for row in lines[-5:])
    assert all(name in lines[-6] for name in ("state", "queued", "in flight", "eta"))
    cut = rendered(made, width, lines=len(lines) - 2).splitlines()
    assert len(cut) == len(lines) - 2
    assert cut[-1] == "and 3 more"


def test_texts_of_strangers_are_shown_as_they_are_and_do_nothing() -> None:
    texts = ["[bold red]x[/]", ":bomb:", "a\x1b[2Jb\x07", "right\u202eleft", "two\nlines", "日本" * 3]
    made = shown(*(source(name, reason=f"[link=http://a]{name}") for name in texts),
                 pause=Pause("paused", "\x1b]0;owned\x07 [blink]full"))  # fmt: skip
    text = rendered(made)
    assert not any(char in text for char in "\x1b\x07\u202e")
    assert len(text.splitlines()) == 5 + len(texts)
    for name in ("[bold red]x[/]", ":bomb:", "a?[2Jb?", "right?left", "two?lines", "日本日本日本"):
        assert name in text
        assert f"[link=http://a]{name}" in text
    assert "NOTHING GOES OUT: ?]0;owned? [blink]full" in text


def test_the_header_says_why_nothing_goes_out() -> None:
    assert "NOTHING GOES OUT: events wait" in rendered(shown(pause=Pause("paused", "events wait")))
    assert "NOTHING" not in rendered(shown())


def test_the_header_of_a_crawl_of_pages_tells_what_became_of_links() -> None:
    links = {"links_admitted": 240, "links_known": 123_456, "links_over_budget": 7, "links_refused": 61}
    one = sample_at(11.0, totals=links | {"pages": 120, "overflow_lost": 3}, overflow=5000, spilled=4000, seeds=3)
    made = snapshot(Counters.of(sample_at(1.0)), replace(one, spider="pages"))
    assert made is not None
    text = rendered(made)
    assert "12 pages/s" in text
    assert "12376 links/s  240 admitted  123k known  7 over budget  0 without room  61 refused  0 excluded" in text
    assert "3 seeds waiting" in text
    assert "5000 beyond their sources' shares  4000 spilled" in text
    assert "LOST 3 requests" in text
    assert not any(word in rendered(shown()) for word in ("links", "beyond", "LOST"))


@pytest.mark.parametrize(
    ("feeding", "text"),
    [
        (Feeding(0, 0), "ETA -"),
        (Feeding(1, 250_000), "ETA - + about 250k seeds being fed"),
        (Feeding(2, None), "ETA - + more being fed"),
    ],
)
def test_the_header_says_when_more_is_being_fed_than_the_eta_counts(feeding: Feeding, text: str) -> None:
    assert text in rendered(shown(feeding=feeding)).splitlines()[2]


def test_the_header_tells_sources_that_wait_for_somebody_from_those_that_go_on_by_themselves() -> None:
    assert "2 halted  1 open" in rendered(shown(halted=["a", "b"], halted_for_a_while=["b", "c"]))
    assert "halted" not in rendered(shown())


def test_numbers_are_short() -> None:
    assert [count(n) for n in (0, 99_999, 100_000, 999_999, 1_234_567, 5 * 10**9)] == [
        *("0", "99999", "100k", "1000k", "1.23M", "5G"),
    ]  # fmt: skip
    assert [digits(value) for value in (0, 0.2, 4.965, 24.17, 113.7, 51_234.5)] == [
        *("0", "0.2", "4.96", "24.2", "114", "51234"),
    ]  # fmt: skip
