"""What the tests of the stores share."""

from tests.storage.conftest import gate

__all__ = ["gate"]
