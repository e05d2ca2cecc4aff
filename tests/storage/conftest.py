"""What the tests of the stores share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.s3_gate import Gate


@pytest.fixture
def gate(moto: str) -> Iterator[Gate]:
    """A gate before an S3 API that a test can shut."""
    one = Gate(moto)
    yield one
    one.stop()
