"""A picture as a decoder analyses it, in this process."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from crawlproject.imaging import analyse as module
from crawlproject.imaging.analysis_runner import Analyse
from crawlproject.imaging.messages import Job
from crawlproject.models import Analysis


def analyse(
    body: bytes, *, memory: float = math.inf, functions: Mapping[str, Analyse] | None = None, **job: Any
) -> Analysis:
    """Analyse it by a job with these fields."""
    return module.analyse(body, Job(**{"max_size": 10**9, "quality": 85, "timeout": 60, **job}), memory, functions)
