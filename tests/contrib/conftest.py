"""What the tests of plug-ins share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real browser, or the test is skipped."""
    from playwright.sync_api import sync_playwright

    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    if not any(found):
        pytest.skip("no browser is installed: apt-get install chromium")
    with sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []  # root, as in containers, cannot have the sandbox
        one = playwright.chromium.launch(executable_path=next(filter(None, found)), args=options)
        yield one
        one.close()
