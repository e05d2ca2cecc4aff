"""Every error this project raises on purpose, but that of imaging. Messages name the value and the remedy."""

from scrapy.exceptions import IgnoreRequest


class CrawlprojectError(Exception):
    """Root of the tree: catch this to catch all of ours and nothing else."""


class ConfigError(CrawlprojectError):
    """A setting is missing, unknown or out of range; the start is refused."""


class RedisUnavailable(CrawlprojectError):
    """No Redis can be reached or started."""


class KafkaUnavailable(CrawlprojectError):
    """Kafka cannot be reached, or refuses what it is sent or asked for."""


class CatalogueError(CrawlprojectError):
    """The catalogue of sources cannot be read or holds rows that make no sense."""


class BadSeed(CrawlprojectError):
    """A seed cannot be understood; `str(error)` is the reason that its dead letter carries."""


class BadEntry(CrawlprojectError):
    """An entry of the frontier cannot be decoded: not written by us, or by another version."""


class AddressRefused(CrawlprojectError, IgnoreRequest):
    """The URL, or an address of its host, is none that we may ask; `str(error)` says why."""


class NoNameServer(CrawlprojectError, IgnoreRequest):
    """No name server answers anything, so nobody knows whether the host of a request has addresses."""


class OptedOut(CrawlprojectError, IgnoreRequest):
    """The owner of a picture forbids keeping it; `str(error)` names the opt-outs and their headers."""


class RobotsDisallowed(CrawlprojectError, IgnoreRequest):
    """A robots.txt forbids the request; `str(error)` names the line."""


class RobotsUnreachable(CrawlprojectError, IgnoreRequest):
    """A robots.txt cannot be had, and nothing may be fetched without; tried again in `retry_in` seconds."""

    def __init__(self, reason: str, retry_in: float) -> None:
        super().__init__(reason)
        self.retry_in = retry_in


class SlotMissed(CrawlprojectError, IgnoreRequest):
    """A send slot came and went before the request could use it: it needs another."""


class MemoryShort(CrawlprojectError, IgnoreRequest):
    """Too many large bodies came in at the same time; this one, the largest of its source, was broken off."""


class StaleConnection(CrawlprojectError):
    """A site closed a connection that was kept open before it answered: the request needs another slot."""


class Stopped(CrawlprojectError, IgnoreRequest):
    """The worker stops, and breaks a request off: it goes back to the frontier."""


class StorageDown(CrawlprojectError):
    """Thumbnails cannot be stored, whichever they are; `str(error)` names the store and the remedy."""


class TlsFailed(CrawlprojectError):
    """No secure connection to a site came about: its certificate is not valid, or OpenSSL found something else."""
