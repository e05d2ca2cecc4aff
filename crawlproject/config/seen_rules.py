"""The seen filter's rules: its size at first, and `CRAWL_SEEN_LINKS`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

EXACT = "exact"
_BLOOM = "bloom:"
_RATES = (0.00001, 0.1)  # below, an exact filter takes hardly more; above, one page in ten is lost


@dataclass(frozen=True, slots=True)
class SeenRules:
    """How what was seen is kept: requests in a first generation, and false positives among links (0: exact)."""

    seen_capacity: int = 10_000_000
    seen_rate: float = 0.0

    def packed(self) -> dict[str, Any]:
        """Return the rules as the functions read them."""
        return asdict(self)


def seen_links(value: Any) -> str:
    """Return how links are kept: `exact`, or `bloom:` and the share of new ones that may be lost."""
    word = str(value).strip().lower()
    if word != EXACT and not _RATES[0] <= rate_of_links(word) <= _RATES[1]:
        raise ValueError(f"'exact' or 'bloom:RATE', RATE from {_RATES[0]:.5f} to {_RATES[1]:g}, as in bloom:0.001")
    return word


def rate_of_links(word: str) -> float:
    """Return the rate in `bloom:RATE`, 0 for all else."""
    try:
        return float(word.removeprefix(_BLOOM)) if word.startswith(_BLOOM) else 0.0
    except ValueError:
        return 0.0
