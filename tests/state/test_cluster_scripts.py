"""The scripts on a Redis Cluster: the tests of some of them, run there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import import_module

import pytest
import pytest_asyncio

from crawlproject import config
from crawlproject.state.client import State
from crawlproject.state.master import master_of
from tests.conftest import local_network

pytestmark = pytest.mark.judges  # in milliseconds

_TRIED = ("lease", "settle", "enqueue", "heartbeat", "discover")


@pytest_asyncio.fixture
async def state(cluster_url: str) -> AsyncIterator[State]:
    """The fixture of this name that the tests ask for, on a cluster."""
    one = State(config.load({"REDIS_URL": cluster_url, **local_network()}), "images")
    await one.open()
    assert master_of(one.redis) is not None
    yield one
    await one.close()


for _verb in _TRIED:
    for _name, _test in vars(import_module(f"tests.state.scripts.test_{_verb}")).items():
        if _name.startswith("test_"):
            globals()[f"test_{_verb}_{_name.removeprefix('test_')}"] = _test
