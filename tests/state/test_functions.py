"""The library of Redis Functions: it is where it is called, spells keys as Python does, and is one of several."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from crawlproject.state import functions
from crawlproject.state.keys import Keys
from tests.state.servers import Server, opened

LUA = resources.files("crawlproject.state") / "lua"
FILES = [file for folder in ("modules", "functions") for file in (LUA / folder).iterdir()]
VERBS = {file.name.removesuffix(".lua") for file in (LUA / "functions").iterdir()}
# Spells all keys that Lua has a name for.
SPELL = """
register('spell', function(ctx, K)
  local spelled = {{'seeds', K.seeds}, {'users_seeds', K.users_seeds}}
  for _, names in ipairs({OF_CRAWL, OF_SPIDER}) do
    for name in pairs(names) do spelled[#spelled + 1] = {name, K[name] or ''} end
  end
  return spelled
end)
"""


def names_of(client: Any) -> dict[str, set[str]]:
    """Return the libraries of a server, and their functions."""
    found = client.execute_command("FUNCTION LIST")
    rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in found]
    return {
        row[b"library_name"].decode(): {function[1].decode() for function in row[b"functions"]} for row in rows
    }


@pytest.mark.parametrize(
    "keys",
    [
        Keys("crawl", "images"),
        Keys("museums", "pages"),
        Keys("{crawl}", "images"),
        Keys("{museums:3}", "images", "museums"),
        Keys("{images:start_urls}", "images", "crawl"),
    ],
    ids=str,
)
def test_lua_spells_keys_as_python_does(redis_url: str, keys: Keys) -> None:
    library = functions.library_with(SPELL)
    with redis.Redis.from_url(redis_url) as client:
        client.execute_command("FUNCTION LOAD REPLACE", library.text)
        called = functions.command("spell", keys, {}, library=library)
        spelled = {name.decode(): key.decode() for name, key in client.execute_command(*called)}
        client.execute_command("FUNCTION DELETE", library.name)
    if keys.namespace != f"{{{keys.users_seeds}}}":  # it is asked for there alone
        spelled["users_seeds"] = keys.users_seeds
    assert spelled == {name: getattr(keys, name) for name in spelled}
    if keys.namespace.startswith("{"):
        own = {key for name, key in spelled.items() if name != "users_seeds"}
        assert {key_slot(key.encode()) for key in own} == {key_slot(keys.namespace.encode())}
    used = set(re.findall(r"\bK\.(\w+)", "".join(file.read_text() for file in FILES)))
    assert used <= spelled.keys()


async def test_a_call_brings_the_library_to_a_server_that_has_not_got_it(server: Server) -> None:
    state = await opened(server.url)
    for _ in range(2):
        await state.scripts.alive(timeout=1)
        library = functions.crawl_library().name
        assert names_of(server.client) == {library: {f"{library}_{verb}" for verb in VERBS}}
        server.client.execute_command("FUNCTION FLUSH")
    await state.close()


def test_two_versions_live_side_by_side(redis_url: str) -> None:
    ours, other = functions.crawl_library(), functions.library_with("-- another version")
    keys = Keys("crawl", "images")
    with redis.Redis.from_url(redis_url) as client:
        for library in (ours, other, ours):
            client.execute_command("FUNCTION LOAD REPLACE", library.text)
        for library in (ours, other):
            called = functions.command("idle", keys, {}, library=library)
            assert client.execute_command(*called) == [1, b"0", b""]
        assert {ours.name, other.name} <= names_of(client).keys()
        client.execute_command("FUNCTION DELETE", other.name)
