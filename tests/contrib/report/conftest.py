"""What the tests of the report share."""

from tests.commands.conftest import frontier

__all__ = ["frontier"]
