"""Who may use the dashboard: its password, the cookie of a session, and the token that every change carries."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from ipaddress import ip_address

from crawlproject.config import Config
from crawlproject.errors import ConfigError

LASTS_S = 30 * 86_400  # of a session
_MOST_FAILURES, _PER_S = 10, 60.0  # wrong passwords in that time; after them nobody may try for a while


class TooManyAttempts(Exception):
    """Too many wrong passwords: none is checked for now."""


class Sessions:
    """Sessions without a store: a cookie is a random name, its expiry time, and our signature of both.

    With a password the key is derived from it, so that a session outlives the process and ends with the password.
    Without one, the cookie only carries the token: whoever can reach the page may use it.
    """

    def __init__(self, password: str | None) -> None:
        self.password = password
        self._failures: deque[float] = deque(maxlen=_MOST_FAILURES)
        if password is None:
            self._key = secrets.token_bytes(32)
        else:  # slow to derive, so that nobody guesses passwords from a cookie
            self._key = hashlib.scrypt(password.encode(), salt=b"crawlproject dashboard", n=2**14, r=8, p=1)

    def new(self) -> str:
        """Return the cookie of a new session."""
        name = f"{secrets.token_urlsafe(18)}.{int(time.time()) + LASTS_S}"
        return f"{name}.{self._signed('session', name)}"

    def is_valid(self, cookie: str) -> bool:
        """Tell whether a cookie was signed here and has not expired."""
        name, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signed("session", name).encode()):
            return False
        return int(name.rpartition(".")[2]) > time.time()

    def name_of(self, cookie: str) -> tuple[str, int]:
        """Return the name of a valid cookie's session, and when it expires (Unix time, s)."""
        name = cookie.rpartition(".")[0]
        return name, int(name.rpartition(".")[2])

    def token(self, cookie: str) -> str:
        """Return the token of a session, which its page knows, and no other site's."""
        return self._signed("token", cookie)

    def is_token(self, cookie: str, token: str) -> bool:
        """Tell whether `token` is that of a session."""
        return hmac.compare_digest(token.encode(), self.token(cookie).encode())

    def is_password(self, password: str) -> bool:
        """Tell whether `password` is right.

        Raises:
            TooManyAttempts: ten in a minute were wrong.

        """
        now = time.monotonic()
        if len(self._failures) == _MOST_FAILURES and now - self._failures[0] < _PER_S:
            raise TooManyAttempts
        right = hmac.compare_digest(password.encode(errors="replace"), (self.password or "").encode())
        if not right:
            self._failures.append(now)
        return right

    def _signed(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


def check_address(config: Config) -> None:
    """Make sure that only operators can control the crawl.

    Raises:
        ConfigError: the dashboard would be open to a network, without a password.

    """
    address = config.dashboard_address
    if config.dashboard_port and not ip_address(address).is_loopback and config.dashboard_password is None:
        raise ConfigError(
            f"CRAWL_DASHBOARD_ADDRESS={address} would let everyone who reaches it control the crawl: "
            "set CRAWL_DASHBOARD_PASSWORD, or leave CRAWL_DASHBOARD_ADDRESS at 127.0.0.1"
        )
