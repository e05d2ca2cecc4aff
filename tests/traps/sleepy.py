"""A worker that falls asleep on a request's way from the gate to the wire, every tenth time."""

import time
from typing import Any

from crawlproject.net.handler import CrawlDownloadHandler


class SleepyHandler(CrawlDownloadHandler):
    """Holds the whole worker up, as a machine does that has too much to do."""

    requests = 0

    async def download_request(self, request: Any) -> Any:
        """Sleep, and go on as if nothing had been."""
        self.requests += 1
        if self.requests % 10 == 0:
            time.sleep(0.15)
        return await super().download_request(request)
