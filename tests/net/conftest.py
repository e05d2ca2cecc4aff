"""What the tests of connections share."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.waiting import PATIENCE_S


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: ours and the site's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        site, _ = server.accept()
    with ours, site:
        ours.setblocking(False)
        site.settimeout(PATIENCE_S)
        yield ours, site
