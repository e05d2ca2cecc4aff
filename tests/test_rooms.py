"""Who may speak to Redis: the modules of state/, and nobody else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "crawlproject"


def outside_state() -> Iterator[Path]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] != "state":
            yield path


def is_error(module: str, name: str) -> bool:
    """Tell whether a name of redis-py is an exception, or the module of all exceptions."""
    found = getattr(import_module(module), name)
    return name == "exceptions" or (isinstance(found, type) and issubclass(found, Exception))


def ways_to_redis(source: str) -> list[str]:
    """Return what gives a module a client: `import redis`, a name of it that is not an exception, `x.redis`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [f"{node.lineno}: import" for name in node.names if name.name.split(".")[0] == "redis"]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "redis":
            clients = [alias.name for alias in node.names if not is_error(node.module, alias.name)]
            found += [f"{node.lineno}: {name}" for name in clients]
        elif isinstance(node, ast.Attribute) and node.attr in {"redis", "_redis"}:
            found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_redis_commands_are_sent_from_state_alone() -> None:
    ways = {path.relative_to(PACKAGE).as_posix(): ways_to_redis(path.read_text()) for path in outside_state()}
    assert len(ways) > 80
    assert {name: found for name, found in ways.items() if found} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import redis", 1),
        ("import redis.asyncio as client", 1),
        ("def f():\n  from redis import Redis, RedisError", 1),
        ("from redis.asyncio import Redis", 1),
        ("from redis import RedisError, exceptions", 0),
        ("from redis.exceptions import ConnectionError", 0),
        ("async def f(state):\n  await state.redis.get(state.keys.pulse)", 1),
        ("from crawlproject.config.redis_url import parse_redis_url", 0),
    ],
)
def test_what_gives_a_module_a_client(source: str, found: int) -> None:
    assert len(ways_to_redis(source)) == found
