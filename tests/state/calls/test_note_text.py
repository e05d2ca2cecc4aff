"""Texts of pages: seen under which address last, in a table of fixed size."""

from __future__ import annotations

import random

from crawlproject.state.client import State
from tests.state.calls.calls import db

HERE, THERE = b"here.", b"there"


async def test_a_text_is_new_until_it_is_seen_under_another_address(state: State) -> None:
    note, text = state.scripts.note_text, b"a" * 9
    assert await note(text, HERE, places=1000)
    assert await note(text, HERE, places=1000)  # fetched again, after its worker was killed
    assert not await note(text, THERE, places=1000)
    assert await note(text, HERE, places=1000)
    assert await note(b"b" * 9, THERE, places=1000)


async def test_the_table_has_its_size_and_forgets_the_text_of_a_place_for_another(state: State) -> None:
    chance = random.Random(1)
    texts = [chance.randbytes(9) for _ in range(400)]
    for text in texts:
        assert await state.scripts.note_text(text, HERE, places=100)
    assert not await state.scripts.note_text(texts[-1], THERE, places=100)
    kept = [text for text in texts if not await state.scripts.note_text(text, THERE, places=100)]
    assert len(kept) <= 100
    assert await db(state).strlen(state.keys.texts_of + "0") == 900
    assert [key async for key in db(state).scan_iter(state.keys.texts_of + "*")] == [b"crawl:images:texts:0"]
