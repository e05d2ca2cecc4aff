"""`scrapy crawl pages` that is killed: `MOMENT NUMBER [PID]`.

MOMENT is one of MOMENTS, at which it kills the process PID (a Redis) and then itself, the NUMBER-th time that it
comes there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from scrapy.cmdline import execute

from crawlproject.state.calls import Scripts
from crawlproject.storage.warc_segments import Segment
from tests.killer import Killer

MOMENTS = (  # in the order in which a page comes to them
    "half written",  # of its record
    "before append",
    "after append",  # its record is kept, and none of its links
    "before note_text",
    "after note_text",
    "before discover",
    "during discover",
    "after discover",  # its links are stored
    "before discover of images",
    "during discover of images",
    "after discover of images",
    "before settle",
    "during settle",
    "after settle",
)


def arm(killer: Killer, moment: str) -> None:
    """Have `killer` strike at that moment."""
    when, _, what = moment.partition(" ")
    if what == "written":
        os.pwrite = killer.half_way(os.pwrite)
    elif what == "append":
        Segment.append = getattr(killer, when)(Segment.append)  # type: ignore[method-assign]
    else:
        script, _, of_images = what.partition(" of ")
        kind = {"before": killer.before, "during": killer.during, "after": killer.when_done}[when]
        spider = of_images or "pages"
        setattr(Scripts, script, _of(spider, getattr(Scripts, script), kind))


def _of(spider: str, script: Callable[..., Any], kind: Callable[..., Any]) -> Callable[..., Any]:
    killing = kind(script)

    def call(self: Scripts, *args: Any, **named: Any) -> Any:
        return (killing if self._known.spider == spider else script)(self, *args, **named)

    return call


if __name__ == "__main__":
    moment, number, *others = sys.argv[1:]
    arm(Killer(int(number), [int(pid) for pid in others]), moment)
    execute(["scrapy", "crawl", "pages"])
