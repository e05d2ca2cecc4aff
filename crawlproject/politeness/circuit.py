"""What a result says about the source that was asked. What follows from it: state/lua/preludes/circuit.lua."""

from __future__ import annotations

from crawlproject.models import Failure

# Never reached the site, or was kept from us by its own word: it says nothing of how the site fares.
_NOT_ASKED = frozenset({"refused_by_us", "robots", "opt_out", "stopped", "memory", "error"})

# The site has answered well; what it sent is another matter.
_ANSWERED = frozenset({"unreadable", "too_large"})


def sample_of(failure: Failure) -> bool | None:
    """Return whether a failed attempt speaks for its source (True), against it (False), or not at all (None).

    Against it speaks what came of asking: any status but 2xx, 3xx, 404 and 410, time-outs, names that do not
    resolve, connections that fail. "error" is an exception nobody has foreseen, more likely ours than theirs.
    """
    if failure.kind in _NOT_ASKED:
        return None
    if failure.kind in _ANSWERED:
        return True
    if failure.status is None:
        return False
    return 200 <= failure.status < 400 or failure.status in {404, 410}
