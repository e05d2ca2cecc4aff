"""The dashboard in a real browser, during a real crawl.

With `SCREENSHOTS=docs/images` in the environment the pictures that the documentation shows are made anew.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest
from PIL import Image

from crawlproject.plugins import offered
from crawlproject.state.keys import Keys
from demo import pictures
from demo.gallery import Gallery, set_faults
from tests.contrib.dashboard.monitors import Monitor
from tests.test_crawl import KEYS, Crawl
from tests.waiting import PATIENCE_S, until

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
PASSWORD = "correct horse & battery"


@pytest.fixture
def crawl(crawl: Crawl) -> Crawl:
    crawl.environ["CRAWL_CIRCUIT_ERRORS"] = "0.1"
    (crawl.folder / "catalogue.json").write_text('[{"source_name": "village", "image_count": 9}]')
    return crawl


@pytest.fixture
def monitor(crawl: Crawl, tmp_path: Path) -> Iterator[Monitor]:
    one = Monitor(crawl.environ, tmp_path / "monitor.log")
    yield one
    one.stop()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that remembers what it complained of, in `page.complaints`."""
    screen = {"width": 1280, "height": 1100}
    context = browser.new_context(viewport=screen, color_scheme="light", locale="en-GB", timezone_id="UTC")
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda said: page.complaints.append(said.text) if said.type in {"error", "warning"} else 0)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.set_default_timeout(1000 * PATIENCE_S)
    yield page
    context.close()


def tile(page: Any, name: str) -> str:
    """Return what a tile says."""
    text: str = page.locator(f"#tiles dl > div:has(dt:text-is('{name}')) dd").inner_text()
    return text


def row(page: Any, source: str) -> Any:
    return page.locator(f"tr[data-source='{source}']")


def screenshot(page: Any, name: str, *, whole: bool = True) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        path = Path(folder) / f"{name}.png"
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=path, full_page=whole and page.viewport_size["width"] > 400)
        Image.open(path).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


def paint(folder: Path, number: int) -> None:
    rng = Random(7)
    pool = pictures.scenes(rng)
    for index in range(number):
        picture = pictures.variation(rng, pool, 300)
        picture.convert("RGB").save(folder / f"{index}.jpg", quality=80)


def test_an_operator_chooses_between_two_spiders_or_sees_both(crawl: Crawl, page: Any, tmp_path: Path) -> None:
    of_images, of_pages = Keys("crawl", "images"), Keys("crawl", "pages")
    crawl.redis.hset(of_images.rates, "museum.org", "0.2")
    crawl.redis.hset(of_images.totals, mapping={"thumbnails": 12, "admitted": 40})
    crawl.redis.hset(of_images.counts, "museum.org", msgpack.packb({"thumbnails": 12}))
    one = Monitor(crawl.environ, tmp_path / "both.log")
    try:
        one.start()
        page.goto(one.url)
        page.wait_for_selector("#tiles dl > div")
        assert page.locator("#spider").inner_text() == "images"  # there is nothing to choose from
        assert not page.locator("#spiders").is_visible()

        # The other spider comes later, and the page that is open offers it.
        found = {"links_admitted": 300, "links_known": 3000, "links_over_budget": 7, "links_refused": 61}
        crawl.redis.hset(of_pages.totals, mapping={"pages": 90, **found})
        counts = {"pages": 90, "good_pages": 80, **found}
        crawl.redis.hset(of_pages.counts, "museum.org", msgpack.packb(counts))
        crawl.redis.hset(of_pages.ledger, "museum.org", "300 20")
        crawl.redis.rpush(of_pages.overflow_of + "1:museum.org", b"\x01\x00\x01a", b"\x01\x00\x01b")
        crawl.redis.hset(of_pages.counters, "overflow", 2)
        choice = page.get_by_role("navigation", name="Spiders")
        choice.get_by_role("link", name="pages").click()
        page.wait_for_url(f"{one.url}/?spider=pages")
        cells = row(page, "museum.org").locator("td")
        until(
            lambda: row(page, "museum.org").locator("td.budget").inner_text() == "300 of 1,320"
        )  # 1,000, and 4 for each good page
        said = row(page, "museum.org").locator("td.links .hidden").inner_text()
        assert said == "300 admitted, 3,000 known, 7 over budget, 61 refused"
        assert cells.nth(3).inner_text() == "0 + 2 waiting"
        assert choice.locator("[aria-current=page]").inner_text().split()[0] == "pages"
        assert not page.locator("#pictures").is_visible()

        # Side by side, each panel has its own crawl, and orders are given in it.
        choice.get_by_role("link", name="side by side").click()
        page.wait_for_url(f"{one.url}/?spider=images&spider=pages")
        page.locator("#tiles-2 dl > div").first.wait_for()
        page.locator("#tiles dl > div").first.wait_for()
        assert tile(page, "thumbnails") == "12"
        assert page.locator("#h-panel").inner_text() == "images"
        assert page.locator("#h-panel-2").inner_text() == "pages"
        assert not page.locator("#pictures-2").is_visible()
        pages = page.locator("#rows-2 tr[data-source='museum.org']")
        with page.expect_request("**/halt") as order:
            pages.get_by_role("button", name="Halt museum.org").click()
        assert order.value.post_data_json == {"source": "museum.org", "spider": "pages"}
        page.get_by_text("museum.org is halted", exact=True).wait_for()
        assert crawl.redis.sismember(KEYS.halted, "museum.org")
        for rows in ("#rows", "#rows-2"):  # a halt is for all spiders
            page.locator(f"{rows} .tag.halted").wait_for()
    finally:
        one.stop()


def test_an_operator_sees_a_crawl_and_steers_it(crawl: Crawl, monitor: Monitor, page: Any) -> None:
    photos = crawl.source("photos", 40)
    paint(photos, 30)
    (photos / "broken.jpg").write_text("no picture")
    crawl.source("museum", 10, pictures=3)
    crawl.source("village", 2, pictures=3)
    set_faults(crawl.sites / "museum", {"/*": {"status": 500}, "/robots.txt": {"status": 404}})
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        crawl.seed("photos", *(f"{number % 30}.jpg?{number}" for number in range(12_000)))
        crawl.seed("photos", "gone.gone", "none.jpg", "broken.jpg", priority=4)
        crawl.seed("museum", *(f"{number % 3}.jpg?{number}" for number in range(100)))
        crawl.seed("village", *(f"{number % 3}.jpg?{number}" for number in range(600)))
        monitor.start()
        crawl.start()
        page.goto(monitor.url)

        # Numbers move.
        page.locator("#state", has_text="running").wait_for()
        until(lambda: float(tile(page, "done a second")) > 0, 2 * PATIENCE_S)
        first = tile(page, "thumbnails")
        until(lambda: tile(page, "thumbnails") != first)
        assert row(page, "photos").locator("td.rate").inner_text().split()[0] != "0"
        assert page.title().endswith("/s · crawlproject")

        # How long whole fetches take, to whom requests are out.
        until(lambda: re.match(r"\d+ m?s\n95 %: \d+ m?s, 99 %: \d+ m?s$", tile(page, "whole fetch")))
        times = r"p50 \d+ m?s,? p99 \d+ m?s"
        until(lambda: re.fullmatch(times, row(page, "photos").locator("td.whole.fetch").inner_text()))
        until(lambda: re.search(r"\d+ sources?, 1 domain$", tile(page, "in flight")))
        assert page.locator("#chart path.good").get_attribute("d")

        # A source in trouble is told of, with the cause, and stands first.
        until(lambda: row(page, "museum").locator(".tag").inner_text() == "open")
        assert page.locator("#rows tr").first.get_attribute("data-source") == "museum"
        said = page.locator("#open").inner_text()
        assert re.search(r"since [\d:]+ UTC: .*; last statuses 500: \d+; circuit open for", said)
        assert "circuit opened" in page.locator("#halts").inner_text()
        assert "status 5xx" in page.locator("#errors").inner_text()
        until(lambda: page.locator("#pictures img").count() >= 20)
        until(lambda: "broken.jpg" in page.locator("#dead").inner_text())
        until(lambda: page.locator("#rot").inner_text().count("status 4") == 2)
        page.locator("#pictures").scroll_into_view_if_needed()  # they are loaded only where they are seen
        until(lambda: page.evaluate("document.querySelector('#pictures img').naturalWidth") > 50)
        if "SCREENSHOTS" in os.environ:
            time.sleep(5)  # the charts have a line
        screenshot(page, "dashboard-light")
        page.emulate_media(color_scheme="dark")
        screenshot(page, "dashboard-dark")

        # What strangers wrote is text.
        crawl.seed("photos", f"0.jpg?{EVIL.replace(' ', '%20')}", priority=4)
        crawl.redis.lpush(
            KEYS.seeds,
            json.dumps({"url": f"{crawl.gallery.urls['photos']}/1.jpg?", "uuid": EVIL, "source": "photos"}),
            EVIL,
        )
        until(lambda: EVIL in page.locator("#dead").inner_text())
        assert page.locator("#pictures script, #dead img, #dead script, #rows img").count() == 0
        assert "owned" not in page.title()

        row(page, "photos").get_by_role("button", name="Halt photos").click()
        page.get_by_text("photos is halted", exact=True).wait_for()
        assert crawl.redis.sismember(KEYS.halted, "photos")
        row(page, "photos").get_by_role("button", name="Resume photos").click()
        until(lambda: not crawl.redis.sismember(KEYS.halted, "photos"))

        # Rates.
        row(page, "village").get_by_role("button", name="Set the rate of village").click()
        page.get_by_label("Requests a second").fill("plenty")
        page.keyboard.press("Enter")
        page.get_by_text("'plenty' is not a rate", exact=False).first.wait_for()
        page.get_by_label("Requests a second").fill("0.5")
        page.keyboard.press("Enter")
        until(lambda: "by override" in row(page, "village").inner_text())
        assert crawl.redis.get(KEYS.override_rate_of + "village") == b"0.5"
        crawl.redis.set(KEYS.override_rate_of + "village", "4.995247952479525")
        until(lambda: re.search(r"of 5\b", row(page, "village").inner_text()))
        row(page, "village").get_by_role("button", name="Set the rate of village").click()
        assert page.get_by_label("Requests a second").input_value() == "5"
        page.keyboard.press("Escape")

        # A monitor that is restarted is found again, and can be told things.
        assert monitor.stop() == 0
        page.get_by_text("not connected to the monitor, retrying").wait_for()
        page.complaints.clear()  # it may well complain that nobody answers
        points = page.locator("#chart path.good").get_attribute("d").count("L")
        monitor.start()
        page.locator("#state", has_text="running").wait_for()
        until(lambda: page.locator("#chart path.good").get_attribute("d").count("L") > points)
        refusals = [text for text in page.complaints if "net::ERR_" not in text]  # nobody was there
        row(page, "village").get_by_role("button", name="Halt village").click()
        page.get_by_text("village is halted", exact=True).wait_for()
        assert crawl.redis.sismember(KEYS.halted, "village")
        assert refusals == []
    assert [text for text in page.complaints if "net::ERR_" not in text] == []


def fill(crawl: Crawl, sources: int) -> None:
    """Have sources without a crawl: some work, statuses, states."""
    names = [f"archive-{number:03}" for number in range(sources)]
    rows = [{"source_name": name, "image_count": 9_000 * number} for number, name in enumerate(names)]
    (crawl.folder / "catalogue.json").write_text(json.dumps(rows))
    crawl.redis.hset(KEYS.rates, mapping=dict.fromkeys(names, "0.2"))
    crawl.redis.sadd(KEYS.halted, names[3])
    for name in names[:9]:
        crawl.redis.rpush(KEYS.statuses_of + name, *[200] * 40, *[404] * 6, *[503] * 4)


def test_it_can_be_used_by_keyboard_on_a_narrow_screen_and_with_a_screen_reader(
    crawl: Crawl, monitor: Monitor, page: Any
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    fill(crawl, 150)
    monitor.start()
    page.goto(monitor.url)
    row(page, "archive-003").wait_for()

    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page, options={"resultTypes": ["violations"]})
        assert [(one["id"], one["nodes"][0]["html"]) for one in found.response["violations"]] == []

    assert page.locator("#rows tr").count() == 100
    page.get_by_role("button", name="Show 50 more").click()
    assert page.locator("#rows tr").count() == 150
    text = "import('/static/text.js').then((text) => text.cause('by size, slowed to 17.8 % by status 503'))"
    assert page.evaluate(text) == "slowed to 17.8 % by status 503"
    page.keyboard.press("/")
    page.keyboard.type("archive-14")
    assert page.locator("#rows tr").count() == 10
    page.keyboard.press("Escape")
    page.get_by_role("button", name="source", exact=True).press("Enter")
    assert page.locator("th[aria-sort='ascending']").inner_text() == "source"
    assert page.locator("#rows tr").first.get_attribute("data-source") == "archive-000"
    page.get_by_label("in this state").select_option("in trouble")
    assert page.locator("#rows tr").count() == 1
    button = page.get_by_role("button", name="Resume archive-003")
    button.focus()
    page.keyboard.press("Enter")
    page.get_by_text("archive-003 has been resumed", exact=True).wait_for()
    assert crawl.redis.scard(KEYS.halted) == 0

    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator("#sources").bounding_box()["y"] < page.locator("#tiles").bounding_box()["y"]
    page.get_by_label("in this state").select_option("all states")
    row(page, "archive-000").get_by_role("button", name="Halt").click()
    page.get_by_text("archive-000 is halted", exact=True).wait_for()
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert [(one["id"], one["nodes"][0]["html"]) for one in found.response["violations"]] == []
    screenshot(page, "dashboard-narrow")
    page.get_by_role("button", name="Theme: system").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    if "report" in offered("pages_of_source"):
        page.goto(f"{monitor.url}/report?source=archive-000")  # styled, on a phone's screen, too
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.locator("h1").evaluate("one => getComputedStyle(one).fontFamily") != "serif"
    assert page.complaints == []


def test_a_password_is_required_once(monitor: Monitor, page: Any) -> None:
    monitor.environ["CRAWL_DASHBOARD_PASSWORD"] = PASSWORD
    monitor.start()
    page.goto(monitor.url)
    page.get_by_label("Password").fill("guess")
    page.keyboard.press("Enter")
    page.get_by_text("Wrong password.").wait_for()
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_text("waiting for the first figures").or_(page.get_by_text("nothing to do")).first.wait_for()
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_text("nothing to do").wait_for()
    monitor.stop()
    monitor.start()
    page.get_by_label("Password").wait_for()  # the session has ended, and the page says so by itself


def test_pages_in_the_background_leave_the_connections_of_the_browser_to_the_one_in_use(
    crawl: Crawl, monitor: Monitor, page: Any
) -> None:
    crawl.redis.hset(KEYS.rates, "museum", "0.2")
    monitor.start()
    turn = """(hidden) => {
        Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }"""  # headless, all pages are in front
    for one in (page, *(page.context.new_page() for _ in range(7))):  # a browser has six to a site
        one.goto(monitor.url)
        row(one, "museum").wait_for()
        one.evaluate(turn, True)
    page.evaluate(turn, False)
    page.locator("#state", has_text="nothing to do").wait_for()
    row(page, "museum").get_by_role("button", name="Halt museum").click()
    page.locator("#said", has_text="museum is halted").wait_for()
