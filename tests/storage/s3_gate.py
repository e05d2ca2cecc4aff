"""A proxy in front of a real S3 API, which can fail as networks and servers do."""

from __future__ import annotations

import http.client
import threading
from http.server import ThreadingHTTPServer
from typing import Any

import boto3
from scrapy.settings import Settings

from tests.sites import Handler

ERRORS = {403: "AccessDenied", 500: "InternalError", 503: "SlowDown"}


def aws(endpoint: str) -> Settings:
    """Return the settings of a client of the S3 API at `endpoint`."""
    return Settings(
        {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "id",
            "AWS_SECRET_ACCESS_KEY": "S3CRET",
            "AWS_REGION_NAME": "us-east-1",
        }
    )


def made_bucket(endpoint: str, name: str) -> Any:
    """Make a bucket in the storage itself, as whoever `aws` names; return it."""
    given = aws(endpoint)
    keys = {key.lower(): given[key.upper()] for key in ("aws_access_key_id", "aws_secret_access_key")}
    resource = boto3.resource("s3", endpoint_url=endpoint, region_name=given["AWS_REGION_NAME"], **keys)
    return resource.create_bucket(Bucket=name)


class Gate:
    """An HTTP proxy on a port of its own. `mode` is what it does with requests:

    "pass"; "slow" (a second later); "hang" (no answer, until the mode changes); "drop" (the connection is closed);
    a status of `ERRORS` (S3's own error for it). `refuse` and `listen` close and open the port itself.
    """

    def __init__(self, target: str) -> None:
        self.target = target.removeprefix("http://")
        self.mode: str | int = "pass"
        self.forbidden: tuple[str, ...] = ()  # ends of paths that are answered with 403 in mode "pass"
        self.asked = 0
        self.port = 0
        self.listen()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def listen(self) -> None:
        gate = self

        class Handler(_Handler):
            pass

        Handler.gate = gate
        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def refuse(self) -> None:
        self.mode = "drop"  # connections that are open
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def stop(self) -> None:
        self.refuse()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that are killed or stopped hang up."""


class _Handler(Handler):  # over HTTP/1.1: clients of S3 wait for a "100 Continue"
    gate: Gate

    def handle_any(self) -> None:
        gate = self.gate
        gate.asked += 1
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        mode = 403 if gate.mode == "pass" and self.path.endswith(gate.forbidden) else gate.mode
        never = threading.Event()
        if mode == "hang":
            while gate.mode == "hang":
                never.wait(0.05)
        elif mode == "slow":
            never.wait(1.0)
        elif isinstance(mode, int):
            self.answer(mode, f"<Error><Code>{ERRORS[mode]}</Code><Message>no</Message></Error>".encode())
            return
        if mode in {"hang", "drop"}:
            self.close_connection = True
            return
        connection = http.client.HTTPConnection(gate.target, timeout=20)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        data = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"content-length", "transfer-encoding", "connection", "date", "server"}:
                self.send_header(name, value)
        length = answer.headers["Content-Length"] if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(data)
        connection.close()

    do_PUT = do_GET = do_HEAD = do_POST = do_DELETE = handle_any  # noqa: N815 - its own names
