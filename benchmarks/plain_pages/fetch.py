"""A plain fetcher: asyncio, aiohttp and lxml, a set of URLs in memory, and nothing else.

    python fetch.py FILE

Fetches every HTML page of the hosts that the URLs in FILE begin with, link by link, 64 at a time; no robots.txt,
no retries, no limit. Prints how many there were.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

import ada_url
import aiohttp
from lxml import html

AT_ONCE = 64


async def fetch(start: list[str]) -> int:
    """Return the number of pages."""
    hosts = {urlsplit(url).netloc for url in start}
    seen, pages = set(start), 0
    queue: asyncio.Queue[str] = asyncio.Queue()
    for url in start:
        queue.put_nowait(url)

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal pages
        while True:
            url = await queue.get()
            try:
                async with session.get(url, ssl=False) as response:
                    if response.content_type != "text/html" or response.status != 200:
                        continue
                    body, base = await response.read(), str(response.url)
                pages += 1
                for node in html.fromstring(body).iter("a"):
                    try:
                        link = ada_url.join_url(base, node.get("href", "")).partition("#")[0]
                    except ValueError:
                        continue
                    if link not in seen and link.startswith("http") and urlsplit(link).netloc in hosts:
                        seen.add(link)
                        queue.put_nowait(link)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                print(url, error, file=sys.stderr)
            finally:
                queue.task_done()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:
        workers = [asyncio.create_task(work(session)) for _ in range(AT_ONCE)]
        await queue.join()
        for worker in workers:
            worker.cancel()
    return pages


if __name__ == "__main__":
    print(asyncio.run(fetch(Path(sys.argv[1]).read_text().split())))
