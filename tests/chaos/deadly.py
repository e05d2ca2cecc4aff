"""A pipeline for the tests: looking at a picture whose identifier ends in `deadly` kills the worker."""

from __future__ import annotations

import os
import signal
from typing import Any

from crawlproject.models import FetchedImage


class DeadlyPipeline:
    """Stands in for a decoder that crashes the process."""

    def process_item(self, item: Any) -> Any:
        """Return the item, or do not return."""
        if isinstance(item, FetchedImage) and item.said["identifier"].endswith("deadly"):
            os.kill(os.getpid(), signal.SIGKILL)
        return item
