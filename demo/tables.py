"""What both demos print at their end."""

from __future__ import annotations

from collections.abc import Sequence


def print_table(rows: Sequence[Sequence[object]]) -> None:
    """Print rows of the same length as columns: the first flush left, the others flush right."""
    texts = [[str(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for first, *rest in texts:
        cells = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]))


def mean_rate(times: Sequence[float]) -> float:
    """Return the requests a second from the first to the last arrival."""
    return (len(times) - 1) / (max(times) - min(times)) if len(set(times)) > 1 else 0.0
