"""`CRAWL_KAFKA_BROKERS` and `CRAWL_KAFKA_OPTIONS`."""

from __future__ import annotations

import json
import re
from typing import Any

from crawlproject.config.parsers import listed


def _broker(name: str) -> str:
    if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}", name):
        raise ValueError(name)
    return name


brokers = listed("brokers such as kafka1.example:9092, separated by commas", _broker)


# Options that the guarantees of docs/kafka.md depend on, or that have a setting or command option of their own.
_FIXED = {
    "bootstrap.servers", "metadata.broker.list", "group.id", "enable.auto.commit", "enable.auto.offset.store",
    "enable.idempotence", "acks", "request.required.acks", "transactional.id", "enable.partition.eof",
    "message.timeout.ms", "delivery.timeout.ms",
}  # fmt: skip


def kafka_options(value: Any) -> tuple[tuple[str, str], ...]:
    try:
        options = dict(json.loads(value or "{}") if isinstance(value, str) else value)
    except (TypeError, ValueError, RecursionError):
        options = {"": None}
    if not all(isinstance(name, str) and isinstance(o, str | int | float) for name, o in options.items()):
        raise ValueError('a JSON object such as {"security.protocol": "SSL"}, of strings, numbers, true and false')
    if taken := sorted(_FIXED & options.keys()):
        raise ValueError(
            f"a JSON object without {', '.join(taken)}: delivery guarantees or other settings determine those"
        )
    texts = {True: "true", False: "false"}
    return tuple((name, texts[o] if isinstance(o, bool) else str(o)) for name, o in options.items())
