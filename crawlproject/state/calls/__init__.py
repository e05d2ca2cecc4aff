"""The functions as Python calls, by subject: arguments packed and replies decoded here and nowhere else.

Each is a file in state/lua/functions/, named by a verb; what stands before it says what it takes and answers.
"""

from crawlproject.state.calls.crawl import LEADER_TTL_S, CrawlScripts, Overview, Pause, histogram
from crawlproject.state.calls.frontier import (
    HISTOGRAMS,
    LATENCY_BOUNDS,
    PARSE_BOUNDS,
    Budget,
    DeadLetter,
    DropReply,
    EnqueueReply,
    Finds,
    FrontierScripts,
    HeartbeatReply,
    Idleness,
    LeaseReply,
    LinkGroup,
    Lost,
    NewRequest,
    Rejected,
    Revisit,
    Settlement,
    SettleReply,
    Sitemaps,
    Text,
)
from crawlproject.state.calls.overflow import Due, Extent, OverflowScripts, Tail, Wanted, digest_of
from crawlproject.state.calls.readers import ReaderScripts
from crawlproject.state.calls.seeds import Batch, ForwardingScripts, UsersSeedsScripts
from crawlproject.state.calls.sources import (
    ROBOTS_LOCK_S,
    Attribution,
    RobotsReply,
    SlotReply,
    SourceScripts,
    SourceStatus,
)


class Scripts(FrontierScripts, OverflowScripts, ForwardingScripts, SourceScripts, CrawlScripts, ReaderScripts):
    """All functions of one Redis."""
