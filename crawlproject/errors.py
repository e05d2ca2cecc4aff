"""Every error this project raises on purpose, except those of imaging. Messages name the value and the remedy."""

from scrapy.exceptions import IgnoreRequest


class CrawlprojectError(Exception):
    """Root of the tree: catch this to catch all of ours and nothing else."""


class ConfigError(CrawlprojectError):
    """A setting is missing, unknown or out of range; the start is refused."""


class RedisUnavailable(CrawlprojectError):
    """No Redis can be reached or started."""


class ReaderTaken(CrawlprojectError):
    """Another process reads the events under the same name, or has taken that name over."""


class CatalogueError(CrawlprojectError):
    """The catalogue of sources cannot be read, or holds no valid row."""


class BadSeed(CrawlprojectError):
    """A seed is invalid; `str(error)` is the reason in its dead letter."""


class BadInput(CrawlprojectError):
    """Files of seeds cannot be fed as was asked for: there are none, a column is missing, one has changed."""


class UnknownSource(CrawlprojectError):
    """An operator's order names a source of which nothing is known."""


class BadEntry(CrawlprojectError):
    """An entry of the frontier cannot be decoded: not written by crawlproject, or by another version of it."""


class AddressRefused(CrawlprojectError, IgnoreRequest):
    """The URL, or an address of its host, must not be requested; `str(error)` says why."""


class NoNameServer(CrawlprojectError, IgnoreRequest):
    """No name server answers, so it is unknown whether the host of a request has addresses."""


class NoRoute(CrawlprojectError, IgnoreRequest):
    """This worker reaches no site at all, so a failure says nothing about the site of a request."""


class RobotsDisallowed(CrawlprojectError, IgnoreRequest):
    """A robots.txt forbids the request; `str(error)` names the line."""


class RobotsOptOut(CrawlprojectError, IgnoreRequest):
    """A robots.txt declares an opt-out that forbids keeping the picture; `str(error)` names it and the line."""


class RobotsUnreachable(CrawlprojectError, IgnoreRequest):
    """A robots.txt cannot be fetched, and nothing else may be without it; tried again in `retry_in` seconds."""

    def __init__(self, reason: str, retry_in: float) -> None:
        super().__init__(reason)
        self.retry_in = retry_in


class Excluded(CrawlprojectError, IgnoreRequest):
    """Nothing goes out to the host of a request, or to its source, because an operator has excluded it."""


class SlotMissed(CrawlprojectError, IgnoreRequest):
    """The request could not use its send slot in time, and needs another."""


class SlotMissedHere(SlotMissed):
    """It was this worker that took too long: the connection had not even been asked for."""


class MemoryShort(CrawlprojectError, IgnoreRequest):
    """Too many large bodies came in at the same time; this body, the largest of its source, was aborted."""


class StaleConnection(CrawlprojectError):
    """A site closed a kept-open connection before it answered: the request needs another slot."""


class Stopped(CrawlprojectError, IgnoreRequest):
    """The worker shuts down and aborts a request, which goes back to the frontier."""


class Paused(CrawlprojectError, IgnoreRequest):
    """This worker stood still during a download that failed: the request goes back to the frontier, uncounted."""


class StorageDown(CrawlprojectError):
    """No thumbnail, or no page, can be stored at the moment; `str(error)` names the storage and the remedy."""


class TlsFailed(CrawlprojectError):
    """No TLS connection to a site could be made: its certificate is invalid, or OpenSSL reports another error."""
