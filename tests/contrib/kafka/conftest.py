"""What the tests of Kafka share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contrib.kafka.broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A Kafka broker, empty."""
    one = Broker()
    yield one
    one.stop()
