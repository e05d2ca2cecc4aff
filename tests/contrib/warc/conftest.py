"""What the tests of the content store share."""

from __future__ import annotations

from tests.storage.conftest import gate

__all__ = ["gate"]
