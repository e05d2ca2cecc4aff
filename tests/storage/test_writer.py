"""Whether the storage or a thumbnail is to blame when a write fails, and what is done about it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from crawlproject import runtime as circuits
from crawlproject.errors import StorageDown
from crawlproject.frontier.scheduler import FrontierScheduler
from crawlproject.state.calls import LeaseReply
from crawlproject.storage.blobs import FolderStorage, StorageWriter
from crawlproject.storage.s3 import S3Storage
from tests.extensions.test_lease_keeper import Case
from tests.state.calls.calls import lead
from tests.storage.s3_gate import Gate, aws, made_bucket
from tests.waiting import until_async


def s3_store(gate: Gate) -> S3Storage:
    made_bucket(gate.url, "gated")
    return S3Storage("s3://gated/", aws(gate.url))


async def until_up(circuit: StorageWriter) -> None:
    await until_async(lambda: not circuit.outage)


async def test_a_missing_folder_is_an_outage_until_it_is_back(tmp_path: Path) -> None:
    circuit = StorageWriter(FolderStorage(tmp_path / "store"))
    await circuit.write("00/a.jpg", b"a")
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").write_text("a file in its place")
    for _ in range(2):
        with pytest.raises(StorageDown, match=r"thumbnails cannot be stored in .*/store \(NotADirectoryError: "):
            await circuit.write("00/b.jpg", b"b")
    (tmp_path / "store").unlink()
    (tmp_path / "away").rename(tmp_path / "store")
    await until_up(circuit)
    await circuit.write("00/b.jpg", b"b")
    assert (tmp_path / "store/00/b.jpg").read_bytes() == b"b"


async def test_what_is_there_is_written_once(tmp_path: Path) -> None:
    circuit = StorageWriter(FolderStorage(tmp_path), what="originals")
    await circuit.write("00/a.png", b"a", once=True)
    first = (tmp_path / "00/a.png").stat()
    await circuit.write("00/a.png", b"a", once=True)
    assert (tmp_path / "00/a.png").stat().st_ino == first.st_ino
    await circuit.write("00/a.png", b"a")
    assert (tmp_path / "00/a.png").stat().st_ino != first.st_ino


async def test_an_obstacle_to_one_thumbnail_is_not_an_outage(tmp_path: Path) -> None:
    circuit = StorageWriter(FolderStorage(tmp_path))
    (tmp_path / "00").write_text("in the way")
    with pytest.raises(NotADirectoryError):
        await circuit.write("00/a.jpg", b"a")
    assert not circuit.outage
    await circuit.write("01/a.jpg", b"a")


async def test_a_momentary_error_is_overcome_by_the_second_try(tmp_path: Path) -> None:
    class Hiccup(FolderStorage):
        failed = False

        def write(self, name: str, data: bytes) -> None:
            if not self.failed:
                self.failed = True
                raise OSError("hiccup")
            super().write(name, data)

    circuit = StorageWriter(Hiccup(tmp_path))
    await circuit.write("00/a.jpg", b"a")
    assert (tmp_path / "00/a.jpg").read_bytes() == b"a"
    assert not circuit.outage


async def test_an_s3_that_fails_is_down_until_it_answers(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuits, "_PROBE_S", 0.1)
    circuit = StorageWriter(s3_store(gate))
    ways: dict[str | int, str] = {
        503: "SlowDown",
        403: "AccessDenied",
        "refuse": "connect",
    }
    for mode, words in ways.items():
        if mode == "refuse":
            gate.refuse()
        else:
            gate.mode = mode
        with pytest.raises(StorageDown) as caught:
            await circuit.write("00/b.jpg", b"b")
        said = str(caught.value)
        assert said.startswith(f"thumbnails cannot be stored in s3://gated/ at {gate.url} (")
        assert words in said
        assert "S3CRET" not in said
        assert said.isprintable()
        if mode == "refuse":
            gate.listen()
        gate.mode = "pass"
        await until_up(circuit)
        await circuit.write("00/b.jpg", b"b")


# With the frontier


async def test_during_an_outage_nothing_is_leased_and_that_is_logged_once(
    scheduler: FrontierScheduler, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(scheduler)
    circuit = StorageWriter(FolderStorage(tmp_path / "store"), scheduler.crawler)
    await lead(scheduler.state)
    (tmp_path / "store").rename(tmp_path / "away")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with pytest.raises(StorageDown):
                await circuit.write("00/a.jpg", b"a")
            await scheduler._lease()
    said = [record.message for record in caplog.records if "Leasing paused" in record.message]
    assert len(said) == 1
    assert said[0].startswith(f"Leasing paused: thumbnails cannot be stored in {tmp_path}/store (FileNotFound")
    assert "bring the folder back" in said[0]
    assert scheduler.stats.get_value("store/down") == 1
    calls = []

    async def fill() -> LeaseReply:
        calls.append(0)
        raise AssertionError

    scheduler.queue.fill = fill  # type: ignore[method-assign]
    await scheduler._lease()
    assert calls == []
    del scheduler.queue.fill
    (tmp_path / "away").rename(tmp_path / "store")
    await until_up(circuit)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        await case.lease()
        reply = await scheduler.queue.fill()
        scheduler._report(reply.state, reply.reason)
    assert [r.message for r in caplog.records if r.name == "crawlproject.frontier.scheduler"] == [
        "Leasing resumed"
    ]


async def test_waiting_leases_go_back_when_the_storage_is_down(
    scheduler: FrontierScheduler, tmp_path: Path
) -> None:
    case = Case(scheduler)
    await case.lease()
    entry = next(iter(scheduler.queue.leases.values())).entry
    redis: Any = scheduler.state.redis
    await redis.rpush(scheduler.state.keys.queue_of + "0:museum", entry)
    await redis.zadd(scheduler.state.keys.due[0], {"museum": 0})
    await scheduler.queue.fill()
    assert (len(scheduler), len(scheduler.queue.leases)) == (1, 2)
    scheduler.leasing.pause("trouble")
    await scheduler._lease()
    assert (len(scheduler), len(scheduler.queue.leases)) == (0, 1)
    scheduler.leasing.pause("other trouble")
    scheduler.leasing.resume("trouble")
    assert scheduler.leasing.paused == "other trouble"
    scheduler.leasing.resume("other trouble")
