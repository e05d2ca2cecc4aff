"""Readers of the events of several shards: each event once in a file or dataset, whatever happens to one shard."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import boto3
import pyarrow.parquet as pq
import pytest
import redis

from crawlproject import config
from crawlproject.errors import CrawlprojectError, ReaderTaken
from crawlproject.kafka import Kafka
from crawlproject.sinks.dataset import Dataset
from crawlproject.sinks.forwarder import Forwarder
from crawlproject.sinks.parquet import ParquetForm
from crawlproject.sinks.sharded_lines import ShardedEventFile
from crawlproject.sinks.webdataset import WebDatasetForm
from crawlproject.state.client import BlockingState
from crawlproject.state.readers import StreamReader, readers
from crawlproject.state.streams import entries_of
from crawlproject.storage.parts import FolderParts, S3Parts
from tests.kafka_broker import Broker
from tests.sinks.events import image
from tests.sinks.lines import before_line, die
from tests.state.servers import Cluster
from tests.storage.s3_gate import aws
from tests.waiting import until

SHARDS = 4
TRACED = ("crawlproject/sinks/sharded_lines.py",)


@pytest.fixture
def state(cluster_url: str) -> Iterator[BlockingState]:
    with connected(cluster_url) as one:
        yield one


def connected(url: str) -> BlockingState:
    settings = {"REDIS_URL": url, "CRAWL_SHARDS": str(SHARDS)}
    return BlockingState.connect(config.load(settings), timeout=5.0)


@pytest.fixture
def bucket(moto: str, tmp_path: Path) -> str:
    options = {"aws_access_key_id": "id", "aws_secret_access_key": "S3CRET", "region_name": "us-east-1"}
    name = tmp_path.name.replace("_", "-")
    boto3.client("s3", endpoint_url=moto, **options).create_bucket(Bucket=name)
    return name


def emit(state: BlockingState, numbers: Sequence[int]) -> None:
    """Add events, each to the next shard."""
    for number in numbers:
        shard = state.shards[number % SHARDS]
        shard.redis.xadd(shard.keys.image_events, {"event": json.dumps(image(number))})


def numbers(path: Path) -> list[int]:
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted(int(json.loads(line)["identifier"].partition(".")[2]) for line in lines)


def drain(state: BlockingState, path: Path, name: str | None = None) -> int:
    file = ShardedEventFile(path, state, name)
    with file.opened():
        return file.drain()


def let_leases_end(state: BlockingState) -> None:
    """Have it be some seconds later, for the leases of readers."""
    for shard in state.shards:
        for key in shard.redis.scan_iter(shard.keys.reader_of + "*"):
            shard.redis.hdel(key, "until")


def test_a_file_has_the_events_of_all_shards_each_once(state: BlockingState, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    emit(state, range(30))
    assert drain(state, path) == 30
    assert drain(state, path) == 0
    emit(state, range(30, 42))
    assert drain(state, path) == 12
    assert numbers(path) == list(range(42))
    position = json.loads((tmp_path / "events.jsonl.position").read_text())
    assert position["offset"] == path.stat().st_size == sum(position["lengths"].values())
    assert position["last"].keys() == {stream for shard in state.shards for stream in shard.keys.streams}
    for shard in state.shards:
        [reader] = readers(shard)
        assert (reader.behind, reader.reading) == (0, False)


def test_two_files_of_one_reader_have_each_event_in_one_of_them(state: BlockingState, tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    emit(state, range(8))
    drain(state, one, "both")
    emit(state, range(8, 16))
    drain(state, two, "both")
    emit(state, range(16, 20))
    drain(state, one, "both")
    assert sorted(numbers(one) + numbers(two)) == list(range(20))


def refused(state: BlockingState, folder: Path) -> None:
    """See a second file refused, as its reader is being read."""
    with (
        pytest.raises(ReaderTaken, match="reader both is being read by process"),
        ShardedEventFile(folder / "two.jsonl", state, "both").opened(),
    ):
        pass


def test_one_process_reads_under_one_name(state: BlockingState, tmp_path: Path) -> None:
    stop = threading.Event()
    one = ShardedEventFile(tmp_path / "one.jsonl", state, "both", stop.is_set)

    def follow() -> None:
        while not stop.is_set():
            one.drain(0.2)

    with one.opened():
        thread = threading.Thread(target=follow)
        thread.start()
        try:
            refused(state, tmp_path)
        finally:
            stop.set()
            thread.join()


def test_who_is_refused_takes_nothing_from_who_reads(state: BlockingState, tmp_path: Path) -> None:
    """One shard was away for the first for some seconds: its lease there has ended."""
    path, stop = tmp_path / "one.jsonl", threading.Event()
    first = ShardedEventFile(path, state, "both", stop.is_set)
    ended: list[Exception] = []

    def follow() -> None:
        try:
            while not stop.is_set():
                first.drain(0.2)
        except ReaderTaken as error:
            ended.append(error)

    with first.opened():
        one = first.streams.readers[0]
        renew = one.renew

        def fails() -> None:
            raise redis.ConnectionError("gone")

        one.renew = fails  # type: ignore[method-assign]
        state.redis.hdel(state.keys.reader_of + "both", "until")
        thread = threading.Thread(target=follow)
        thread.start()
        try:
            refused(state, tmp_path)
            one.renew = renew  # type: ignore[method-assign]
            emit(state, range(8))
            until(lambda: ended or numbers(path) == list(range(8)))
        finally:
            stop.set()
            thread.join()
    assert not ended


def test_who_is_refused_gives_back_what_it_has_taken(
    state: BlockingState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when two begin at the same moment, and each finds all free."""
    first, last = ShardedEventFile(tmp_path / "one.jsonl", state, "both"), state.shards[3]
    with first.opened():
        last.redis.delete(last.keys.reader_of + "both")
        monkeypatch.setattr(StreamReader, "await_free", lambda reader: None)
        stop = threading.Event()
        renewing = threading.Thread(target=lambda: keep(first, stop))
        renewing.start()
        try:
            with pytest.raises(ReaderTaken), ShardedEventFile(tmp_path / "two.jsonl", state, "both").opened():
                pass
        finally:
            stop.set()
            renewing.join()
        assert not last.redis.hexists(last.keys.reader_of + "both", "until")


def keep(file: ShardedEventFile, stop: threading.Event) -> None:
    """Renew the leases of all shards but the last one."""
    while not stop.wait(0.1):
        for reader in file.streams.readers[:-1]:
            reader.renew()


def test_a_file_of_another_number_of_shards_is_refused(state: BlockingState, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.touch()
    (tmp_path / "events.jsonl.position").write_text(
        json.dumps({"offset": 0, "last": {"{crawl:7}:link_rot": "0-0"}})
    )
    with pytest.raises(CrawlprojectError, match="another namespace, or of a crawl with another number of shards"):
        drain(state, path)


@pytest.mark.slow
def test_killed_at_any_line_it_goes_on_exactly_once(
    cluster_url: str, state: BlockingState, tmp_path: Path
) -> None:
    """A child per line of the sink's code, which dies when it is about to run that one."""
    path = tmp_path / "events.jsonl"
    died, line = True, 0
    while died:
        emit(state, range(2 * line, 2 * line + 2))
        died = drained_by_a_child_that_dies(cluster_url, path, 3 * line)
        let_leases_end(state)
        line += 1
        drain(state, path)
        assert numbers(path) == list(range(2 * line))
    assert line > 40


def drained_by_a_child_that_dies(url: str, path: Path, at_line: int) -> bool:
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    try:
        with connected(url) as own:
            sys.settrace(before_line(TRACED, at_line, die))
            drain(own, path)
        os._exit(0)
    finally:
        os._exit(1)


def test_a_shard_that_does_not_note_holds_up_its_own_events_alone(state: BlockingState, tmp_path: Path) -> None:
    """Neither lost nor doubled, whether it has noted them or not."""
    path = tmp_path / "events.jsonl"
    said: list[str] = []
    file = ShardedEventFile(path, state, say=said.append)
    with file.opened():
        for first, is_noted in ((0, True), (8, False)):
            emit(state, range(first, first + 8))
            one = file.streams.readers[1]
            note = one.note_at

            def fails(*args: Any, is_noted: bool = is_noted, note: Any = note) -> None:
                if is_noted:
                    note(*args)
                raise redis.ConnectionError("gone")

            one.note_at = fails  # type: ignore[method-assign, assignment]
            with suppress(redis.ConnectionError):
                file.drain()
            assert [number for number in range(first, first + 8) if number not in numbers(path)] == [
                number for number in range(first, first + 8) if number % SHARDS == 1
            ]
            one.note_at = note  # type: ignore[method-assign]
            last = first + 8

            def has_all(last: int = last) -> bool:
                file.drain(0.1)
                return len(numbers(path)) >= last

            until(has_all)
            assert numbers(path) == list(range(first + 8))
    assert any("shard 1 of 4 does not answer" in text for text in said)
    assert said[-1] == "shard 1 of 4 answers again"


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_file_has_what_a_shard_has_noted_late(state: BlockingState, tmp_path: Path, is_noted: bool) -> None:
    """Without --follow, too, in the same run."""
    path, tries = tmp_path / "events.jsonl", 0
    emit(state, range(8))
    file = ShardedEventFile(path, state)
    with file.opened():
        one = file.streams.readers[1]
        note = one.note_at

        def fails_once(*args: Any) -> None:
            nonlocal tries
            tries += 1
            if tries > 1 or is_noted:
                note(*args)
            if tries == 1:
                raise redis.ConnectionError("gone")

        one.note_at = fails_once  # type: ignore[method-assign, assignment]
        assert file.drain() == 8
    assert numbers(path) == list(range(8))


def test_a_batch_that_was_noted_is_in_the_file_of_the_next_process(state: BlockingState, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for first, is_noted in ((0, True), (8, False)):
        emit(state, range(first, first + 8))
        file = ShardedEventFile(path, state)
        with file.opened():
            one = file.streams.readers[1]
            note = one.note_at

            def fails(*args: Any, is_noted: bool = is_noted, note: Any = note) -> None:
                if is_noted:
                    note(*args)
                raise redis.ConnectionError("gone")

            one.note_at = fails  # type: ignore[method-assign, assignment]
            with suppress(redis.ConnectionError):
                file.drain()
        assert len(numbers(path)) == first + 6
        assert drain(state, path) == (0 if is_noted else 2)
        assert numbers(path) == list(range(first + 8))


@pytest.mark.slow
def test_a_shard_that_is_away_pauses_alone(cluster: Cluster, state: BlockingState, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    said: list[str] = []
    file = ShardedEventFile(path, state, say=said.append)
    with file.opened():
        emit(state, range(16))
        node = cluster.owner_of(state.shards[3].keys.readers)
        gone = [shard for shard in state.shards if cluster.owner_of(shard.keys.readers) is node]
        assert 1 <= len(gone) < SHARDS
        node.client.wait(1, 1000)
        replica = cluster.replica_of(node)
        node.kill()
        replica.kill()
        try:
            others = [number for number in range(16) if state.shards[number % SHARDS] not in gone]
            until(lambda: file.drain(0.2) or numbers(path) == others)
            until(lambda: file.drain(0.2) or any("shard 3 of 4 does not answer" in text for text in said))
        finally:
            node.start()
            replica.start()
        until(cluster.is_whole)
        until(lambda: file.drain(0.2) or numbers(path) == list(range(16)))
    assert "shard 3 of 4 answers again" in said
    assert drain(state, path) == 0


def test_notes_do_not_send_their_script_each_time(cluster: Cluster, state: BlockingState, tmp_path: Path) -> None:
    def evals() -> int:
        found = [master.client.info("commandstats").get("cmdstat_eval", {}) for master in cluster.masters()]
        return sum(one.get("calls", 0) for one in found)

    drain(state, tmp_path / "one.jsonl")
    let_leases_end(state)
    before = evals()
    emit(state, range(8))
    drain(state, tmp_path / "one.jsonl")
    assert numbers(tmp_path / "one.jsonl") == list(range(8))
    assert evals() == before
    for master in cluster.masters():
        master.client.script_flush()
    emit(state, range(8, 16))
    let_leases_end(state)
    drain(state, tmp_path / "one.jsonl")
    assert numbers(tmp_path / "one.jsonl") == list(range(16))


@pytest.mark.slow
def test_what_a_master_says_that_was_replaced_while_it_hung_is_not_in_the_file(
    state: BlockingState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it wakes it may carry out calls that waited, and answer a reader; the other one has none of that."""
    path = tmp_path / "events.jsonl"
    shard, real = state.shards[1], redis.Redis.xread
    emit(state, range(4))
    assert drain(state, path) == 4
    emit(state, [4, 5, 5 + SHARDS])

    def xread(client: redis.Redis, *args: Any, **options: Any) -> Any:
        kept: Any = shard.redis.xrange(shard.keys.image_events, count=1)
        answer = real(client, *args, **options)
        if any(entry.stream == shard.keys.image_events for entry in entries_of(answer)):
            shard.redis.delete(shard.keys.image_events)  # as if the next call were answered by another node
            for at, fields in kept:
                shard.redis.xadd(shard.keys.image_events, fields, id=at)
        return answer

    monkeypatch.setattr(redis.Redis, "xread", xread)
    assert drain(state, path) == 1
    assert numbers(path) == [0, 1, 2, 3, 4]
    monkeypatch.undo()
    emit(state, [5])
    assert drain(state, path) == 1
    assert numbers(path) == [0, 1, 2, 3, 4, 5]


def test_what_ends_without_a_shard_says_so(cluster: Cluster, state: BlockingState, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    emit(state, range(8))
    node = cluster.owner_of(state.shards[3].keys.readers)
    node.client.wait(1, 1000)
    replica = cluster.replica_of(node)
    node.kill()
    replica.kill()
    try:
        with pytest.raises(
            redis.ConnectionError, match=r"shard 3 of 4 does not answer .*run this again when it does"
        ):
            drain(state, path)
        assert numbers(path)
    finally:
        node.start()
        replica.start()
    until(cluster.is_whole)
    let_leases_end(state)
    drain(state, path)
    assert numbers(path) == list(range(8))


def dataset_in(folder: Path, state: BlockingState, rows: int = 100) -> Dataset:
    parts = FolderParts(folder)
    return Dataset(state, parts, ParquetForm(parts, rows), every=600.0)


def written(state: BlockingState, folder: Path, rows: int = 100) -> int:
    dataset = dataset_in(folder, state, rows)
    with dataset.opened():
        dataset.drain()
        dataset.commit()
    return dataset.written


def in_parts(folder: Path) -> list[int]:
    """Return the numbers of the rows of all parts."""
    tables = [pq.read_table(path)["identifier"].to_pylist() for path in sorted(folder.glob("*.parquet"))]
    return sorted(int(name.partition(".")[2]) for names in tables for name in names)


def test_a_dataset_has_the_events_of_all_shards_each_once(state: BlockingState, tmp_path: Path) -> None:
    out = tmp_path / "out"
    emit(state, range(12))
    assert written(state, out, 5) == 12
    assert written(state, out, 5) == 0
    emit(state, range(12, 20))
    assert written(state, out, 5) == 8
    assert in_parts(out) == list(range(20))
    assert [next(readers(shard)).behind for shard in state.shards] == [0] * SHARDS


def test_rows_that_are_in_no_part_yet_are_not_noted(state: BlockingState, tmp_path: Path) -> None:
    """Not even while the note of another shard's part is late."""
    dataset = dataset_in(tmp_path / "out", state)
    emit(state, range(4))
    with dataset.opened():
        dataset.drain()
        one = dataset.streams.readers[1]
        note = one.note

        def fails(*args: Any) -> None:
            raise redis.ConnectionError("gone")

        one.note = fails  # type: ignore[method-assign, assignment]
        dataset.commit()
        emit(state, range(4, 8))

        def has(rows: int) -> bool:
            dataset.drain(0.1)
            return dataset.written == rows

        until(lambda: has(7))
        assert [next(readers(shard)).behind for shard in state.shards] == [1, 2, 1, 1]
        one.note = note  # type: ignore[method-assign]
        until(lambda: has(8))
        assert [next(readers(shard)).behind for shard in state.shards] == [1] * SHARDS


@pytest.mark.parametrize("away", range(SHARDS))
def test_what_comes_after_a_part_that_was_not_noted_is_not_noted_as_read(
    state: BlockingState, tmp_path: Path, away: int
) -> None:
    """A part becomes full in the middle of what was read of several shards, and one of them does not note it."""
    emit(state, range(12))
    dataset = dataset_in(tmp_path / "out", state, rows=5)
    with dataset.opened():
        one = dataset.streams.readers[away]
        note = one.note

        def fails(*args: Any) -> None:
            raise redis.ConnectionError("gone")

        one.note = fails  # type: ignore[method-assign, assignment]
        with suppress(redis.ConnectionError):
            dataset.drain()
        one.note = note  # type: ignore[method-assign]
        for _ in range(3):
            dataset.drain(0.1)
        # It ends here as by kill -9: nothing is committed any more.
    written(state, tmp_path / "out")
    assert in_parts(tmp_path / "out") == list(range(12))


def test_a_shard_that_answers_again_is_read_to_its_end(state: BlockingState, tmp_path: Path) -> None:
    """Without --follow, too: it had not noted a part, and does when it answers."""
    emit(state, range(12))
    dataset = dataset_in(tmp_path / "out", state, rows=5)
    with dataset.opened():
        one = dataset.streams.readers[3]
        note, tries = one.note, 0

        def fails_once(*args: Any) -> None:
            nonlocal tries
            tries += 1
            if tries == 2:
                raise redis.ConnectionError("gone")
            note(*args)

        one.note = fails_once  # type: ignore[method-assign, assignment]
        dataset.drain()
        dataset.commit()
        assert tries > 2
    assert in_parts(tmp_path / "out") == list(range(12))


def test_a_shard_that_answers_late_doubles_nothing_of_the_others(
    state: BlockingState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of them is not read again before it is taken."""
    take, late, tries = StreamReader.take, state.shards[2].keys.reader_of, 0

    def fails_once(reader: StreamReader) -> Any:
        nonlocal tries
        if reader._reader_of == late:
            tries += 1
            if tries == 1:
                raise redis.ConnectionError("gone")
        return take(reader)

    monkeypatch.setattr(StreamReader, "take", fails_once)
    emit(state, range(12))
    assert written(state, tmp_path / "out") == 12
    assert in_parts(tmp_path / "out") == list(range(12))


def test_a_dataset_without_a_shard_has_the_rows_of_the_others(state: BlockingState, tmp_path: Path) -> None:
    emit(state, range(12))
    dataset = dataset_in(tmp_path / "out", state)
    with dataset.opened():

        def fails(*args: Any) -> None:
            raise redis.ConnectionError("gone")

        dataset.streams.readers[1].read = fails  # type: ignore[method-assign, assignment]
        with pytest.raises(redis.ConnectionError, match=r"shard 1 of 4 does not answer .*run this again"):
            dataset.drain()
    assert in_parts(tmp_path / "out") == [number for number in range(12) if number % SHARDS != 1]
    assert written(state, tmp_path / "out") == 3
    assert in_parts(tmp_path / "out") == list(range(12))


def test_a_part_that_was_begun_is_ended_where_the_shards_were_then(
    state: BlockingState, tmp_path: Path, bucket: Any, moto: str
) -> None:
    """By the next process: one shard had no event till then, and now some; another is away for a while."""
    uri = f"s3://{bucket}/shards"

    class Dies(S3Parts):
        def _put(self, name: str, file: IO[bytes], metadata: dict[str, str], **condition: str) -> None:
            super()._put(name, file, metadata, **condition)
            if name.endswith(".tar"):
                raise KeyboardInterrupt

    def dataset_on(parts: S3Parts) -> Dataset:
        return Dataset(state, parts, WebDatasetForm(parts, lambda name: b"", 100, 100), every=600)

    emit(state, [number for number in range(12) if number % SHARDS])
    first = dataset_on(Dies(uri, aws(moto)))
    with pytest.raises(KeyboardInterrupt), first.opened():
        first.drain()
        first.commit()
    emit(state, range(12, 20))
    emit(state, range(0, 12, SHARDS))

    def fails(*args: Any) -> None:
        raise redis.ConnectionError("gone")

    second = dataset_on(S3Parts(uri, aws(moto)))
    with second.opened():
        read = second.streams.readers[3].read
        second.streams.readers[3].read = fails  # type: ignore[method-assign, assignment]
        with pytest.raises(redis.ConnectionError, match=r"shard 3 of 4 does not answer"):
            second.drain()
        second.commit()
        assert "00000000.parquet" not in S3Parts(uri, aws(moto)).names()
        second.streams.readers[3].read = read  # type: ignore[method-assign]
        second.drain()
        second.commit()
    parts = S3Parts(uri, aws(moto))
    tables = [pq.read_table(parts.read(f"0000000{number}.parquet"))["identifier"].to_pylist() for number in (0, 1)]
    found = [sorted(int(name.partition(".")[2]) for name in names) for names in tables]
    assert found == [[number for number in range(12) if number % SHARDS], [0, 4, 8, *range(12, 20)]]


def test_kafka_has_the_events_of_all_shards(state: BlockingState, broker: Broker) -> None:
    settings = {"CRAWL_KAFKA_BROKERS": broker.address, "CRAWL_KAFKA_OPTIONS": {"linger.ms": "0"}}
    forwarder = Forwarder(state, Kafka(config.load(settings), lambda _: None))
    emit(state, range(10))
    with forwarder.opened():
        assert forwarder.drain() == 10
        assert forwarder.drain() == 0
    assert [next(readers(shard)).behind for shard in state.shards] == [0] * SHARDS


def test_what_goes_to_kafka_ends_though_a_shard_can_be_read_but_not_written_to(
    cluster: Cluster, state: BlockingState, tmp_path: Path, broker: Broker
) -> None:
    emit(state, range(16))
    node = cluster.owner_of(state.shards[3].keys.readers)
    stuck = [shard for shard in state.shards if cluster.owner_of(shard.keys.readers) is node]
    settings = {"CRAWL_KAFKA_BROKERS": broker.address, "CRAWL_KAFKA_OPTIONS": {"linger.ms": "0"}}
    ends = time.monotonic() + 20
    forwarder = Forwarder(state, Kafka(config.load(settings), lambda _: None), lambda: time.monotonic() > ends)
    with forwarder.opened():
        node.client.config_set("min-replicas-to-write", 5)
        try:
            with pytest.raises(redis.ConnectionError, match=r"does not answer .*run this again when it does"):
                forwarder.drain()
            assert time.monotonic() < ends
        finally:
            node.client.config_set("min-replicas-to-write", 0)
        assert 0 < len(stuck) < SHARDS
        assert forwarder.sent == 16 - 4 * len(stuck)
        forwarder.drain()
        assert forwarder.sent == 16
