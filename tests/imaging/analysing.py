"""A picture as a decoder analyses it, in this process."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from crawlproject.imaging import analyse as module
from crawlproject.imaging.analysis_runner import Analyse
from crawlproject.imaging.messages import Job
from crawlproject.models import Analysis, FileType, Format

# A format of a plug-in, whose pictures have a size and no pixels, and with which decoders may start threads.
DRAWN = Format(
    file=FileType(".drawn", "image/x-drawn"),
    begins=re.compile(b"drawn"),
    load=lambda: None,
    has_threads=True,
    read_size=lambda body: (30, 20) if body.startswith(b"drawn") else None,
)
PLUGINS = {"DRAWN": f"{__name__}:DRAWN"}


def analyse(
    body: bytes, *, memory: float = math.inf, functions: Mapping[str, Analyse] | None = None, **job: Any
) -> Analysis:
    """Analyse it by a job with these fields."""
    return module.analyse(body, Job(**{"max_size": 10**9, "quality": 85, "timeout": 60, **job}), memory, functions)
