"""How the text of a robots.txt is stored: short ones leave their copy compact."""

from __future__ import annotations

import hashlib
from random import Random
from typing import Any

import pytest

from crawlproject.state.client import State
from crawlproject.state.robots_texts import _DICTIONARY, SHORT, packed, unpacked
from tests.robots_copies import keep_copy

URL = "https://museum.org/robots.txt"
ORDINARY = (
    b"User-agent: *\nDisallow: /wp-admin/\nAllow: /wp-admin/admin-ajax.php\nDisallow: /?s=\nDisallow: /basket/\n"
    b"Disallow: /members/login\nDisallow: /internal-7/\n\nSitemap: https://museum.org/sitemap_index.xml\n"
)
LONG = b"User-agent: *\n" + b"".join(b"Disallow: /%d/%x\n" % (n, n * 7919) for n in range(500))


@pytest.mark.parametrize(
    "text",
    [b"", b"x", ORDINARY, LONG, b"\0zlib\0", b"\0zlib\0" + ORDINARY, Random(0).randbytes(90), b"\xff\r\n" * 40],
    ids=lambda text: f"{len(text)} bytes",
)
@pytest.mark.parametrize("url", [URL, "https://b\udcffcher.org/robots.txt", "https://x/?\u20ac"])
def test_a_text_comes_back_as_it_was(text: bytes, url: str) -> None:
    kind, stored = packed(text, url)
    as_read = url.encode(errors="surrogateescape").decode(errors="replace")
    assert unpacked(kind, stored, as_read) == text
    assert len(stored) <= len(text) + 40


def test_what_others_have_stored_is_unpacked_as_far_as_a_robots_txt_goes() -> None:
    assert unpacked(SHORT, b"\xff junk", URL) == b""
    assert unpacked("rules", b"\0zlib\0junk", URL) == b""
    assert unpacked("rules", ORDINARY, URL) == ORDINARY


def test_stored_copies_need_the_dictionary_as_it_is() -> None:
    digest = hashlib.sha256(_DICTIONARY).hexdigest()
    assert digest == "a60b2529ad45ae11ae6d5987c76e89c565a5c31c1e8168d389e9bf97fd486db9"


async def memory(state: State) -> int:
    redis: Any = state.redis
    return int(await redis.memory_usage(state.keys.robots_of + URL))


async def test_an_ordinary_robots_txt_leaves_its_copy_compact(state: State) -> None:
    await keep_copy(state, URL, "museum", kind="none")
    least = await memory(state)
    await keep_copy(state, URL, "museum", body=ORDINARY)
    reply = await state.scripts.look_robots("w", URL, "museum")
    assert (reply.what, reply.body) == ("rules", ORDINARY)
    assert await memory(state) <= least + 80
    assert await state.redis.zcard(state.keys.robots_stored) == 0
    await keep_copy(state, URL, "museum", body=LONG)
    assert (await state.scripts.look_robots("w", URL, "museum")).body == LONG
    assert await state.redis.zcard(state.keys.robots_stored) == 1


async def test_a_copy_as_older_versions_have_stored_it_is_read(state: State) -> None:
    redis: Any = state.redis
    await keep_copy(state, URL, "museum", body=ORDINARY)
    await redis.hset(state.keys.robots_of + URL, mapping={"kind": "rules", "body": ORDINARY})
    assert (await state.scripts.look_robots("w", URL, "museum")).body == ORDINARY
