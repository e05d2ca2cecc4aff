"""A whole crawl, from Kafka to Kafka."""

from __future__ import annotations

import json
import subprocess
import sys

from demo.gallery import Gallery
from tests.contrib.kafka.broker import Broker
from tests.test_crawl import KEYS, Crawl
from tests.waiting import PATIENCE_S


def test_seeds_from_kafka_end_as_events_in_kafka_or_dead_letters(crawl: Crawl, broker: Broker) -> None:
    crawl.source("photos", 150, pictures=20)
    crawl.environ["CRAWL_KAFKA_BROKERS"] = broker.address
    with Gallery(crawl.sites, crawl.folder / "arrivals.jsonl") as crawl.gallery:
        seeds: list[str | bytes | None] = [
            json.dumps(
                {"url": f"{crawl.gallery.urls['photos']}/{number}.jpg", "uuid": f"{number}", "source": "photos"}
            )
            for number in range(22)  # two of them are not there
        ]
        broker.send("inbound_images", [*seeds, *seeds[:5], "nonsense {", None])
        feed = subprocess.Popen([sys.executable, "-m", "scrapy", "feed", "--kafka"], env=crawl.environ)
        try:
            crawl.until(lambda: crawl.redis.llen(KEYS.seeds) == 29)
            crawl.run()
        finally:
            feed.terminate()
            assert feed.wait(PATIENCE_S) == 0
    crawl.command("events --kafka")
    pictures, rot = (
        [message.value() or b"" for message in broker.messages(name)]
        for name in ("image_metadata_updates", "link_rot")
    )
    assert sorted(int(json.loads(value)["identifier"]) for value in pictures) == list(range(20))
    assert sorted(json.loads(value)["identifier"] for value in rot) == ["20", "21"]
    assert sorted(pictures) == sorted(fields[b"event"] for _, fields in crawl.redis.xrange(KEYS.image_events))
    assert crawl.dead().keys() == {"nonsense {", ""}
