"""Every error this project raises on purpose. Messages name the value and the remedy."""


class CrawlprojectError(Exception):
    """Root of the tree: catch this to catch all of ours and nothing else."""


class ConfigError(CrawlprojectError):
    """A setting is missing, unknown or out of range; the start is refused."""


class RedisUnavailable(CrawlprojectError):
    """No Redis can be reached or started."""


class CatalogueError(CrawlprojectError):
    """The catalogue of sources cannot be read or holds rows that make no sense."""


class BadSeed(CrawlprojectError):
    """A seed cannot be understood; `str(error)` is the reason that its dead letter carries."""


class BadEntry(CrawlprojectError):
    """An entry of the frontier cannot be decoded: not written by us, or by another version."""


class UnreadableImage(CrawlprojectError):
    """The bytes are no picture that we can read; `str(error)` is the reason for the dead letter."""
