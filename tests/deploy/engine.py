"""A Docker engine for the tests of the image: the one that answers, or a private one.

A private one needs root, `dockerd` and `debootstrap` on the PATH, and, for its first run, the packages of Debian
and PyPI. It has a network namespace of its own: no route or firewall of this machine changes, and its
containers reach nothing beyond it. Its images stay in the folder IMAGE_TEST_CACHE, or in
~/.cache/crawlproject-image-test. IMAGE_TEST_BASE names an image to build on, in place of the Dockerfile's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import until

ROOT = Path(__file__).parents[2]
IMAGE = "crawlproject"
NO_COMPOSE = "no Docker Compose of version 2.24.4 or newer"
_COMPOSE_VERSION = (2, 24, 4)  # knows !reset, which a test uses
STAND_IN = "redis:7.2.11-alpine"  # as compose.yaml names it
_BASE = "crawlproject-base"
_PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"
_AUTHORITIES = Path("etc/ssl/certs/ca-certificates.crt")  # whom this machine trusts, which may be those of a proxy
# Redis as Debian has it, for compose.yaml in a private engine; the user as in the official image.
_REDIS = f"""
FROM {_BASE}
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends redis-server >/dev/null \\
    && groupadd --gid 1000 redis1000 && install -d -o 999 -g 1000 /data
VOLUME /data
WORKDIR /data
"""


class Engine:
    """Where containers run; `is_private`: nobody else's are there, and no registry is asked."""

    def __init__(self, host: str | None, *, is_private: bool) -> None:
        self.environ = {**os.environ} | ({"DOCKER_HOST": host} if host else {})
        self.is_private = is_private
        self.composer = composer()

    def run(
        self, *words: str | Path, stdin: str = "", check: bool = True, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command that speaks to the engine."""
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            env=self.environ | environ,
            cwd=ROOT,
        )
        assert done.returncode == 0 or not check, f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}"
        return done

    def docker(self, *words: str | Path, stdin: str = "", check: bool = True) -> str:
        """Run `docker WORDS`; return what it prints."""
        return self.run("docker", *words, stdin=stdin, check=check).stdout.strip()


def reason_for_none() -> str | None:
    """Return why there can be no engine here; None if there can."""
    if shutil.which("docker") is None:
        return "no docker on the PATH: apt-get install docker.io, or see docs.docker.com/engine/install"
    if not composer():
        return NO_COMPOSE
    if _answers():
        return None
    if os.geteuid() != 0:
        return "no Docker engine answers, and a private one needs root"
    missing = [
        name for name in ("dockerd", "debootstrap", "setpriv", "unshare", "ip") if shutil.which(name) is None
    ]
    if missing:
        return f"no Docker engine answers, and a private one needs {', '.join(missing)} on the PATH"
    return None


def _answers() -> bool:
    return subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0


def composer() -> list[str]:
    """Return the command of a Docker Compose that is new enough; [] if there is none."""
    for command in (["docker", "compose"], ["docker-compose"]):
        try:
            done = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        version = tuple(map(int, re.findall(r"\d+", done.stdout)[:3]))
        if done.returncode == 0 and version >= _COMPOSE_VERSION:
            return command
    return []


@contextmanager
def started() -> Iterator[Engine]:
    """Yield an engine that has the image, built anew."""
    base = os.environ.get("IMAGE_TEST_BASE")
    if _answers():
        engine = Engine(None, is_private=False)
        _build(engine, base)
        yield engine
        return
    default = Path.home() / ".cache" / "crawlproject-image-test"
    cache = Path(os.environ.get("IMAGE_TEST_CACHE") or default).resolve()
    cache.mkdir(parents=True, exist_ok=True)
    # Twice: what is built may ask the registries of packages, what is tested may not.
    with _daemon(cache, has_network=True) as engine:
        if not engine.docker("images", "--quiet", _BASE):
            _bootstrap(engine)
        if not engine.docker("images", "--quiet", STAND_IN):
            engine.docker("build", "--network", "host", "--tag", STAND_IN, "-", stdin=_REDIS)
        _build(engine, base or _BASE, "--network", "host")
    with _daemon(cache, has_network=False) as engine:
        yield engine


def _build(engine: Engine, base: str | None, *options: str) -> None:
    argument = ["--build-arg", f"PYTHON={base}"] if base else []
    engine.docker("build", *options, *argument, "--tag", IMAGE, ".")


def _bootstrap(engine: Engine) -> None:
    with tempfile.TemporaryDirectory(prefix="crawl-image-test-") as folder:
        system = Path(folder) / "system"
        engine.run("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "trixie", system)
        if (Path("/") / _AUTHORITIES).exists():
            shutil.copy(Path("/") / _AUTHORITIES, system / _AUTHORITIES)
        archive = Path(folder) / "system.tar"
        left_out = [f"--exclude=./{path}" for path in ("var/cache/apt", "var/lib/apt/lists", "dev")]
        engine.run("tar", "-C", system, "-cf", archive, *left_out, ".")
        engine.docker("import", archive, _BASE)


@contextmanager
def _daemon(cache: Path, *, has_network: bool) -> Iterator[Engine]:
    """Run dockerd, with the network of this machine, none of which it changes, or in one of its own."""
    with tempfile.TemporaryDirectory(prefix="crawl-dockerd-") as folder:
        socket = f"unix://{folder}/socket"
        command = ["dockerd", "--host", socket, "--data-root", str(cache), "--exec-root", f"{folder}/exec"]
        command += ["--pidfile", f"{folder}/pid", "--oom-score-adjust", "0"]
        if tini := shutil.which("tini-static"):
            command += ["--init-path", tini]
        if has_network:
            command += ["--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
        namespaces = ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount"]  # however the tests end, it ends
        if not has_network:
            namespaces += ["--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        with (Path(folder) / "log").open("w+") as log:
            process = subprocess.Popen([*namespaces, *command], stdout=log, stderr=log)
            try:
                engine = Engine(socket, is_private=True)
                said = ["docker", "version"]
                until(lambda: process.poll() is not None or engine.run(*said, check=False).returncode == 0)
                assert process.poll() is None, (Path(folder) / "log").read_text()
                yield engine
            finally:
                process.terminate()
                process.wait(30)
