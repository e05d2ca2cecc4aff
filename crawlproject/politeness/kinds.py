"""The kinds under which errors are counted: few and fixed, so that each can be a counter of every source."""

from __future__ import annotations

from crawlproject.models import Failure

# What each kind is, for people. "store" and "ours" cost the source nothing.
ERROR_KINDS = {
    "dns": "its name does not resolve",
    "connect": "no connection, or one that broke",
    "tls": "no valid certificate, or no agreement on TLS",
    "timeout": "no answer within DOWNLOAD_TIMEOUT",
    "http_2xx": "another 2xx than 200",
    "http_3xx": "a redirect that leads nowhere",
    "http_4xx": "4xx but 404 and 410, which are link rot",
    "http_5xx": "5xx",
    "http_other": "another status",
    "decode": "no picture that can be read within its limits",
    "too_large": "larger than DOWNLOAD_MAXSIZE",
    "robots": "forbidden by robots.txt, or that one cannot be had",
    "opt_out": "forbidden by an opt-out",
    "refused": "an address, port or scheme that is not crawled",
    "store": "the thumbnail could not be stored: back to the queue",
    "ours": "trouble of our own, see the log: back to the queue, with a delivery counted",
}

_BY_KIND = {
    "dns": "dns",
    "refused": "connect",
    "network": "connect",
    "tls": "tls",
    "timeout": "timeout",
    "unreadable": "decode",
    "robots": "robots",
    "opt_out": "opt_out",
    "refused_by_us": "refused",
}


def error_kind(failure: Failure) -> str:
    """Return the kind, one of `ERROR_KINDS`, under which a failed attempt is counted."""
    if failure.kind == "http":
        kind = f"http_{(failure.status or 0) // 100}xx"
        return kind if kind in ERROR_KINDS else "http_other"
    if failure.kind == "too_large":  # by its header once it was there, or while it came
        return "too_large" if failure.status is None else "decode"
    return _BY_KIND.get(failure.kind, "ours")
