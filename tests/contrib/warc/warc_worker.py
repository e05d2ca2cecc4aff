"""A process that keeps pages and says which are kept, until it is killed: `FOLDER CRASH`.

CRASH is the moment at which it kills itself, `CALL:NUMBER` with a system call and how often it is called before;
"" for never. It prints a line `NUMBER WARC OFFSET LENGTH` for each page that is kept.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from scrapy.settings import Settings

from crawlproject.contrib.warc import store as warc_store
from crawlproject.contrib.warc.store import PageStore
from tests.contrib.warc.warc_reading import exchange

_AT_ONCE = 20
_PAGES = 400


def crash_at(call: str, number: int) -> None:
    """Have this process kill itself in the middle of a call, half done where that can be."""
    calls = 0
    real: Any = getattr(os, call)

    def crashing(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < number:
            return real(*args, **named)
        if call == "pwrite":
            file, data, offset = args
            real(file, data[: len(data) // 2], offset)
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    setattr(os, call, crashing)


async def main(folder: str, crash: str) -> None:
    store = PageStore(Settings({"CRAWL_PAGES_STORE": folder}))
    warc_store._SEGMENT_BYTES = 30_000  # a few groups
    store.open()
    if crash:
        call, _, number = crash.partition(":")
        crash_at(call, int(number))

    async def keep(number: int) -> None:
        place = await store.write(exchange(number))
        os.write(1, f"{number} {place.warc} {place.offset} {place.length}\n".encode())

    places = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with places:
            await keep(number)

    await asyncio.gather(*(one(number) for number in range(_PAGES)))
    await store.close()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(exist_ok=True)
    asyncio.run(main(sys.argv[1], sys.argv[2]))
