"""Who takes part, in the order in which they run."""

from __future__ import annotations

from benchmarks.peers import Peer
from benchmarks.peers.ours.peer import Ours
from benchmarks.peers.stock.peer import Stock

PEERS: tuple[Peer, ...] = (Stock(), Stock(full=False), Ours())
