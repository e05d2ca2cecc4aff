"""What is logged about a fault of Redis: what it is and what to do, once."""

from __future__ import annotations

import logging

import pytest
import redis

from crawlproject.state import health
from crawlproject.state.health import QUIET_S, Health, fault_of, plain


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Clock:
    caplog.set_level(logging.INFO)
    one = Clock()
    monkeypatch.setattr(health, "time", one)
    return one


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "raise maxmemory"),
        (redis.ReadOnlyError("You can't write against a read only replica."), "point REDIS_URL at the master"),
        (redis.exceptions.NoPermissionError("this user has no permissions"), "rights that docs/deploy.md names"),
        (redis.ResponseError("BUSY Redis is busy running a script."), "function kill"),
        (redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"), "cannot write to its disk"),
        (redis.ConnectionError("Connection refused"), "does not answer"),
        (redis.ResponseError("WRONGTYPE crawl:slots is a string, not a zset: rename it"), "crawl:slots is"),
        (redis.ResponseError("ERR unknown"), "Redis fails, retrying until it recovers: ERR unknown"),
        # what stands in the way of a connection
        (redis.ConnectionError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"), "ssl_ca_certs=FILE"),
        (redis.ConnectionError("IP address mismatch, certificate is not valid for '::1'"), "hostname=false"),
        (redis.ConnectionError("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert"), "ssl_keyfile=FILE"),
        (redis.ConnectionError("invalid username-password pair or user is disabled."), "the user and password"),
    ],
)
def test_each_fault_has_its_sentence(error: Exception, words: str) -> None:
    assert words in fault_of(error)
    assert "secret" not in fault_of(error) + plain(error)
    assert "\n" not in plain(error)


@pytest.mark.parametrize(
    "added",
    [
        "script: 9d0f0ae7ae4b6f4a2e5b0f1c9e4c1d2b3a4f5e6d, on @user_script:95.",  # Redis
        "script: on @user_script:95.",  # Valkey
    ],
)
def test_what_is_added_to_errors_of_scripts_is_left_out(added: str) -> None:
    assert plain(redis.ResponseError(f"WRONGTYPE a is a list {added}")) == "WRONGTYPE a is a list"


def test_a_fault_is_logged_once_and_so_is_its_end(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    one = Health()
    one.answered()
    for port in range(5):
        one.failed(redis.ConnectionError(f"Connection from port {port} refused"))
        clock.now += 1
        one.answered()  # other calls succeed
    clock.now += QUIET_S - 1.5
    one.answered()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    clock.now += 1
    for _ in range(3):
        one.answered()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "port 0" in caplog.records[0].message
    assert "answers again; over after 4 s: Redis does not answer" in caplog.records[1].message
    one.failed(redis.ConnectionError("gone again"))
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "ERROR"]


def test_faults_are_distinguished_and_bounded(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    one = Health()
    for number in range(100):
        for error in (redis.ConnectionError("gone"), redis.OutOfMemoryError("not allowed")):
            one.failed(error)
        assert number or len(caplog.records) == 2
        one.failed(redis.ResponseError(f"ERR {number}"))
    assert len(caplog.records) == 16
