"""The texts of the scripts: what they declare is what they need."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest
import redis

from crawlproject.state.keys import Keys
from crawlproject.state.script_text import ScriptText, _parts

KEYS = Keys("crawl", "images")
FOLDER = resources.files("crawlproject.state") / "lua"
VERBS = sorted(file.name.removesuffix(".lua") for file in FOLDER.iterdir() if file.name.endswith(".lua"))
PRELUDES = sorted(file.name.removesuffix(".lua") for file in (FOLDER / "preludes").iterdir())

# Of Lua and of Redis; and what stands before a bracket, but is not a call.
FUNCTIONS = {"error", "ipairs", "next", "pairs", "pcall", "select", "setmetatable", "tonumber", "tostring", "type"}
WORDS = {"unpack", "and", "function", "if", "elseif", "in", "not", "or", "return", "while", "until"}
# Also touched by commands that no type stops: is Redis out of memory, what is to be logged, is there a leader, was
# the crawl divided.
TRIED = {"pulse", "data_fault", "leader", "dead_refusals", "spill_fault", "spill_ready", "refill_ready", "layout"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_finds_all_functions_that_it_calls(verb: str) -> None:
    text = re.sub(r"'[^'\n]*'|--[^\n]*", "''", ScriptText(verb, KEYS).text)
    called = set(re.findall(r"(?<![\w.:])([a-z_]\w*)\(", text))
    defined = set(re.findall(r"\bfunction (\w+)", text))
    for names in re.findall(r"\blocal ([\w, ]+?) *(?:=|\n)", text):
        defined |= set(names.split(", "))
    assert called - defined <= FUNCTIONS | WORDS


def test_constants_stand_as_numbers() -> None:
    text = ScriptText("lease", KEYS).text
    assert "DOUBT_US" not in text
    assert "resume = now + 1500000" in text


def test_only_scripts_that_give_or_keep_slots_look_which_server_it_is() -> None:
    """And those that send something to another shard, or slot, when they do."""
    looks = {verb for verb in VERBS if "'INFO', 'server'" in ScriptText(verb, KEYS).text}
    sends = {verb for verb in looks if "function send(" in ScriptText(verb, KEYS).text}
    assert looks - sends == {"acquire", "confirm", "lead", "lease", "renew", "send_seeds"}
    assert sends == {"enqueue", "offer", "receive", "retry_dead", "send_found", "settle", "split_seeds"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_stands_before_its_callers(verb: str) -> None:
    text = ScriptText(verb, KEYS).text
    for found in re.finditer(r"^local function (\w+)", text, re.MULTILINE):
        assert not re.search(rf"(?<![\w.']){found[1]}\(", text[: found.start()]), found[1]
        assert len(re.findall(rf"^local function {found[1]}\b", text, re.MULTILINE)) == 1
        assert re.search(rf"\b{found[1]}\b", text[found.end() :]), f"{found[1]} is not used"


@pytest.mark.parametrize("verb", VERBS)
def test_a_script_checks_each_key_that_sources_share(verb: str) -> None:
    parts = _parts(verb)
    checked = {name for part in parts for name in (*part.types, *part.few, *part.reads)}
    text = ScriptText(verb, KEYS).text
    shared = {name for name in re.findall(r"\bK\.(\w+)", text) if not name.endswith("_of")}
    assert shared - TRIED <= checked
    assert all(f"K.{name}" in text or f"K.{name}" in part.text for part in parts for name in part.reads)


def test_each_prelude_is_needed_by_a_script() -> None:
    needed = {item for verb in VERBS for part in _parts(verb) for item in part.declared("needs")}
    assert needed | {"types"} == set(PRELUDES)


def test_keys_and_arguments_are_those_that_the_text_names() -> None:
    script = ScriptText("drop_dead", KEYS)
    assert script.keys == [KEYS.data_fault, KEYS.dead, KEYS.dead_refusals, KEYS.dead_sources]
    assert script.arguments == {"dead_letters"}
    assert "K.leader" not in script.text
    assert "add_dead_letter" not in script.text  # nothing in it adds one


@pytest.mark.parametrize("verb", VERBS)
def test_redis_compiles_each_script(redis_url: str, verb: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert len(client.script_load(ScriptText(verb, KEYS).text)) == 40


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("kind", ["set", "stream"])
def test_keys_that_are_looked_at_together_are_named_one_by_one(redis_url: str, kind: str, place: int) -> None:
    names = [f"k{number}" for number in range(4)]
    arguments = ", ".join(f"'{name}'" for name in names)
    prelude = _parts("lead")[0].text
    with redis.Redis.from_url(redis_url) as client:
        untyped: Any = client
        script = f"{prelude}\nrequire_{kind}s({arguments})\nreturn 1"
        for name in names:
            if kind == "set":
                client.sadd(name, "x", name)
            else:
                client.xadd(name, {"x": "y"})
        assert untyped.eval(script, 0) == 1
        client.delete(names[place], names[place - 1])
        assert untyped.eval(script, 0) == 1
        client.zadd(names[place], {"x": 1})
        with pytest.raises(redis.ResponseError, match=f"WRONGTYPE k{place} is a zset, not a {kind}"):
            untyped.eval(script, 0)
