"""A name server on loopback that answers what it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dnslib
import dnslib.server


class Zone(dnslib.server.BaseResolver):  # type: ignore[misc]
    """The names: `.invalid` does not exist, all others are 127.0.0.1 unless `records` has them.

    `records` maps a name to its successive answers, the last of which is repeated; an answer is a list of
    addresses, or None for no reply, as from a name server that is down.
    """

    def __init__(self) -> None:
        self.records: dict[str, list[list[str] | None]] = {}
        self.delays: dict[str, float] = {}  # seconds that the answer for a name takes
        self.rcodes: dict[str, int] = {}  # error codes that replace the answers for a name; "*": for every name
        self.away = False  # no reply to any query
        self.ttl = 1  # seconds, of all answers
        self.asked: list[str] = []
        self._kinds: dict[str, set[int]] = {}  # record types already queried of a name's present answer
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Reset everything."""
        with self._lock:
            self.records.clear()
            self.delays.clear()
            self.rcodes.clear()
            self.away = False
            self.asked.clear()
            self._kinds.clear()

    def resolve(self, request: Any, handler: Any) -> Any:
        """Answer a query; resolvers query A and AAAA of a name together, in any order."""
        name = str(request.q.qname).rstrip(".").lower()
        time.sleep(self.delays.get(name, 0.0))
        with self._lock:
            if request.q.qtype == dnslib.QTYPE.A:
                self.asked.append(name)
            answers = self.records.get(name, [["127.0.0.1"]])
            addresses = answers[0]
            kinds = self._kinds.setdefault(name, set())
            kinds.add(request.q.qtype)
            if len(kinds) == 2:
                kinds.clear()
                if len(answers) > 1:
                    answers.pop(0)
        if addresses is None or self.away:
            raise dnslib.DNSError("no reply")
        reply = request.reply()
        if rcode := self.rcodes.get(name) or self.rcodes.get("*"):
            reply.header.rcode = rcode
            return reply
        if name.endswith("invalid") or not addresses:
            reply.header.rcode = dnslib.RCODE.NXDOMAIN
        for address in addresses:
            kind = "AAAA" if ":" in address else "A"
            if dnslib.QTYPE[request.q.qtype] == kind and not name.endswith("invalid"):
                reply.add_answer(*dnslib.RR.fromZone(f"{name} {self.ttl} {kind} {address}"))
        return reply


@contextmanager
def served(names: Zone) -> Iterator[str]:
    """Serve names; yield host and port, as CRAWL_DNS_SERVERS wants them."""
    quiet = dnslib.server.DNSLogger("-request,-reply,-truncated,-error", prefix=False)
    server = dnslib.server.DNSServer(names, address="127.0.0.1", port=0, logger=quiet)
    server.start_thread()
    host, port = server.server.server_address
    try:
        yield f"{host}:{port}"
    finally:
        server.stop()
        server.server.server_close()
