"""Folders of pictures as web sites: a private nginx with one port a source, and what its access log tells.

nginx runs as one process in the foreground, on 127.0.0.1, with configuration and log in a folder of its own,
and ends with the context. It is the judge of politeness: what arrived when is its word, not the crawler's. So
it must not come late itself: files are read by threads, and a slow disk delays no other request.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.ours import issue_certificate, stop, until
from demo.redis_servers import free_port

_CONFIG = """\
daemon off;
master_process off;
user {user};
pid {home}/nginx.pid;
error_log {home}/error.log warn;
worker_rlimit_nofile 4096;
events {{ worker_connections 2048; }}
http {{
    types {{
        image/jpeg jpg jpeg; image/png png; image/gif gif;
        image/webp webp; image/tiff tif tiff; image/bmp bmp;
        text/html html htm; text/css css; text/plain txt; application/javascript js;
    }}
    default_type application/octet-stream;
    sendfile on;
    sendfile_max_chunk 512k;
    aio threads;
    keepalive_requests 100000;
    log_format arrivals '$msec $request_time $status $server_port $request_uri';
    access_log {home}/access.log arrivals;
    client_body_temp_path {home}/temp; proxy_temp_path {home}/temp; fastcgi_temp_path {home}/temp;
    uwsgi_temp_path {home}/temp; scgi_temp_path {home}/temp;
    {tls}
{servers}
}}
"""
_SERVER = '    server {{ listen {host}:{port} {tls} backlog=1024; root "{root}"; }}'
_PATIENCE = 10.0  # seconds for nginx to start, and to end


class Arrival(NamedTuple):
    """One request: when its first byte arrived (Unix time, to the millisecond), and what it got."""

    time: float
    path: str
    status: int


class Site:
    """A web site for each folder, its base URL in `urls` by the source's name, while the context lasts.

    With `apart` each has an address of its own, 127.0.0.1, 127.0.0.2 and so on, and so is a domain of its own.
    With `tls` all are https sites, with certificates that no browser would accept.
    """

    def __init__(self, folders: Mapping[str, Path], home: Path, *, apart: bool = False, tls: bool = False) -> None:
        self.folders = {name: folder.resolve() for name, folder in folders.items()}
        self.home = home.resolve()
        self.hosts = {name: f"127.0.0.{number if apart else 1}" for number, name in enumerate(folders, 1)}
        self.tls = tls
        self.urls: dict[str, str] = {}
        self._ports: dict[int, str] = {}

    def __enter__(self) -> Self:
        program = shutil.which("nginx", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin")
        if program is None:
            sys.exit("The benchmarks serve their pictures with nginx: install it (apt-get install nginx-light).")
        self.home.mkdir(parents=True, exist_ok=True)
        self._ports = {free_port(): name for name in self.folders}
        scheme = "https" if self.tls else "http"
        self.urls = {name: f"{scheme}://{self.hosts[name]}:{port}" for port, name in self._ports.items()}
        config = self.home / "nginx.conf"
        servers = (
            _SERVER.format(host=self.hosts[name], port=port, tls="ssl" * self.tls, root=self.folders[name])
            for port, name in self._ports.items()
        )
        user = pwd.getpwuid(os.getuid()).pw_name
        config.write_text(
            _CONFIG.format(user=user, home=self.home, tls=self._certificate(), servers="\n".join(servers))
        )
        command = [program, "-e", f"{self.home}/error.log", "-p", str(self.home), "-c", str(config)]
        self._process = subprocess.Popen(command)
        self._wait()
        return self

    def __exit__(self, *_: object) -> None:
        stop(self._process, _PATIENCE)

    def _certificate(self) -> str:
        """Return the lines of the configuration that name the certificate of all sites; "" without TLS."""
        if not self.tls:
            return ""
        path, _ = issue_certificate(self.home, self.hosts.values())
        return f"ssl_certificate {path}; ssl_certificate_key {path};"

    def _wait(self) -> None:
        def is_there(host: str, port: int) -> bool:
            if self._process.poll() is not None:
                sys.exit(f"nginx does not start, see {self.home / 'error.log'}")
            with socket.socket() as probe:
                return probe.connect_ex((host, port)) == 0

        for port, name in self._ports.items():
            until("nginx has started", _PATIENCE, partial(is_there, self.hosts[name], port))

    def arrivals(self) -> dict[str, list[Arrival]]:
        """Return the requests of each source in the order of their arrival."""
        found: dict[str, list[Arrival]] = {name: [] for name in self.folders}
        for line in (self.home / "access.log").read_text().splitlines():
            done, took, status, port, path = line.split(" ", 4)
            arrival = Arrival(float(done) - float(took), path, int(status))
            found[self._ports[int(port)]].append(arrival)
        return {name: sorted(arrivals) for name, arrivals in found.items()}


def link(pictures: Iterable[Path], folder: Path) -> list[str]:
    """Put links to the pictures into `folder`, under names without surprises; return those in order."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for number, picture in enumerate(pictures):
        names.append(f"{number:05d}{picture.suffix.lower()}")
        (folder / names[-1]).symlink_to(picture.resolve())
    return names
