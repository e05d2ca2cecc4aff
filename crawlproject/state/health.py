"""Faults of Redis, logged in one line per change."""

from __future__ import annotations

import logging
import re
import time

import redis
import redis.exceptions

logger = logging.getLogger(__name__)

QUIET_S = 10.0  # a fault is over after this long without a failure: some calls are made only every 6 s

_MAX_FAULTS = 16  # tracked at a time

# Error codes, and what they mean.
_FAULTS = (
    (
        r"\bOOM\b",
        "Redis is out of memory (maxmemory), and the crawl pauses: raise maxmemory, or free some "
        "(scrapy events reads events, scrapy dead drop deletes dead letters); the crawl resumes on its own",
    ),
    (
        r"\b(READONLY|UNBLOCKED)\b",
        "Redis is a read-only replica, and the crawl pauses: point REDIS_URL at the master, "
        "or name the sentinels (redis+sentinel://...), which know it",
    ),
    (r"\bLOADING\b", "Redis is loading its data, and the crawl pauses until it is done"),
    (r"\bBUSY\b", "Redis runs a script that does not end, and the crawl pauses: redis-cli function kill ends it"),
    (r"\bMISCONF\b", "Redis cannot write to its disk, and the crawl pauses: see the log of Redis"),
    (
        r"\bWAIT\b",
        "No replica confirms in time what is written, and seeds and events wait for it, with CRAWL_REDIS_WAIT=all "
        "the whole crawl: see its log",
    ),
    (r"\bNOREPLICAS\b", "Redis is missing replicas (min-replicas-to-write), and the crawl pauses: start them"),
    (
        r"Too many connections",  # redis-py's own bound
        "This process has no connection to Redis left, retrying until one is free: allow it more than redis-py's "
        "100 (REDIS_URL=...?max_connections=200)",
    ),
    (
        r"max number of clients reached",
        "Redis has as many clients as it allows (maxclients), retrying until one has gone: raise that",
    ),
    (
        r"\bCLUSTERDOWN\b",
        "No node of the Redis Cluster has the slot of the crawl, and the crawl pauses until one has: "
        "see redis-cli --cluster check",
    ),
    (
        r"\b(ASK|TRYAGAIN)\b",
        "The slot of the crawl is moved to another node, and the crawl pauses until it is there",
    ),
    (
        r"\bMOVED\b",
        "The nodes of the Redis Cluster do not agree who has the slot of the crawl, and the crawl pauses until "
        "they do",
    ),
    (
        r"\b(NOAUTH|WRONGPASS)\b",
        "Redis refuses this user: correct the user and password in REDIS_URL",
    ),
    (
        r"\bNOPERM\b",
        "Redis does not allow this user all that a crawl needs: give it the rights that docs/deploy.md names",
    ),
)

# What stands in the way of a connection, and what to do about it.
_OBSTACLES = (
    (
        r"(IP address|Hostname) mismatch",
        "its certificate has another name: let nodes tell theirs (cluster-announce-hostname, "
        "cluster-preferred-endpoint-type hostname), or set ssl_check_hostname=false in REDIS_URL",
    ),
    (r"certificate has expired", "renew its certificate"),
    (r"CERTIFICATE_VERIFY_FAILED", "name the CA that has signed its certificate: ssl_ca_certs=FILE in REDIS_URL"),
    (r"CERTIFICATE_REQUIRED", "it wants a certificate: ssl_certfile=FILE and ssl_keyfile=FILE in REDIS_URL"),
    (r"\bNOPERM\b", "give this user the rights that docs/deploy.md names"),
    (
        r"invalid username-password pair|\b(NOAUTH|WRONGPASS)\b|Authentication required",
        "correct the user and password in REDIS_URL",
    ),
)

# What Redis and Valkey append to the errors of scripts.
_OF_SCRIPTS = re.compile(r",? script: (\S+, )?on @user_(script|function):.*")

# redis-py removes the code from the errors for which it has a class.
_CODES = {
    redis.OutOfMemoryError: "OOM",
    redis.ReadOnlyError: "READONLY",
    redis.BusyLoadingError: "LOADING",
    redis.exceptions.NoPermissionError: "NOPERM",
    redis.AuthenticationError: "NOAUTH",
}


def _coded(error: BaseException) -> str:
    codes = (code for kind, code in _CODES.items() if isinstance(error, kind))
    return " ".join((*codes, str(error)))


def plain(error: BaseException) -> str:
    """Return the text of a Redis error, in one line and without what Redis adds to errors of functions."""
    text = _OF_SCRIPTS.sub("", str(error))
    return " ".join(text.split())[:300] or type(error).__name__


def is_readonly(error: BaseException) -> bool:
    """Tell whether a write was sent to a replica."""
    return "READONLY" in _coded(error)


def known_fault(error: BaseException) -> str | None:
    """Return the sentence for an error that Redis itself reports, None for other errors."""
    coded = _coded(error)
    found = next((sentence for pattern, sentence in _FAULTS if re.search(pattern, coded)), None)
    return f"{found} ({plain(error)})" if found and "NOPERM" in coded else found  # which command


def remedy_of(error: BaseException) -> str | None:
    """Return what to do about an error that stands in the way of a connection; None if it does not say."""
    text = _coded(error)
    return next((remedy for pattern, remedy in _OBSTACLES if re.search(pattern, text)), None)


def fault_of(error: BaseException) -> str:
    """Return the sentence for an error: the fault and its remedy. Equal faults have equal sentences."""
    text = plain(error)
    if "WRONGTYPE" in text:
        foreign = text[text.index("WRONGTYPE") :]
        return f"Redis holds data not written by crawlproject, and the crawl pauses: {foreign}"
    if sentence := known_fault(error):
        return sentence
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError, OSError)):
        remedy = remedy_of(error) or "start it, or check the network"
        return f"Redis does not answer, retrying until it does: {remedy}"
    return f"Redis fails, retrying until it recovers: {text}"


class Health:
    """Logs when a fault of Redis begins and when it is over.

    During some faults part of the calls succeed (when out of memory, those that free some): a fault is over only
    when it has not occurred for `QUIET_S`.
    """

    def __init__(self) -> None:
        self._faults: dict[str, tuple[float, float]] = {}  # sentence -> when it began, when it last occurred

    def failed(self, error: BaseException) -> None:
        """Note that a call failed; the first of each fault is logged."""
        sentence, text, now = fault_of(error), plain(error), time.monotonic()
        if sentence not in self._faults and len(self._faults) >= _MAX_FAULTS:
            return  # enough faults are logged already
        began, _ = self._faults.get(sentence, (now, now))
        if sentence not in self._faults:
            logger.error(sentence if text in sentence else f"{sentence} ({text})")
        self._faults[sentence] = began, now

    def answered(self) -> None:
        """Note that a call succeeded; the end of a fault is logged."""
        if self._faults:
            now = time.monotonic()
            for sentence, (began, last) in list(self._faults.items()):
                if now - last >= QUIET_S:
                    del self._faults[sentence]
                    logger.info("Redis answers again; over after %.0f s: %s", last - began, sentence)
