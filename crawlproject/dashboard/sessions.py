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

LASTS = 30 * 86_400  # seconds of a session
_MOST_FAILURES, _PER = 10, 60.0  # wrong passwords, in seconds; then nobody may try for a while


class TooManyAttempts(Exception):
    """Wrong passwords have come too fast: none is looked at."""


class Sessions:
    """Sessions that nobody has to keep: a cookie is a random name, its end, and our signature of both.

    With a password the key is made from that, so that a session outlives the process and ends with the password.
    Without one, the cookie is for the token alone: who can reach the page may use it.
    """

    def __init__(self, password: str | None) -> None:
        self.password = password
        self._failures: deque[float] = deque(maxlen=_MOST_FAILURES)
        if password is None:
            self._key = secrets.token_bytes(32)
        else:  # slow to make, so that nobody guesses passwords by a cookie
            self._key = hashlib.scrypt(password.encode(), salt=b"crawlproject dashboard", n=2**14, r=8, p=1)

    def new(self) -> str:
        """Return the cookie of a new session."""
        name = f"{secrets.token_urlsafe(18)}.{int(time.time()) + LASTS}"
        return f"{name}.{self._signed('session', name)}"

    def is_valid(self, cookie: str) -> bool:
        """Tell whether a cookie is ours and not too old."""
        name, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signed("session", name).encode()):
            return False
        return int(name.rpartition(".")[2]) > time.time()

    def token(self, cookie: str) -> str:
        """Return the token of a session, which its page knows, and no other site's."""
        return self._signed("token", cookie)

    def is_token(self, cookie: str, token: str) -> bool:
        """Tell whether `token` is that of a session."""
        return hmac.compare_digest(token.encode(), self.token(cookie).encode())

    def is_password(self, password: str) -> bool:
        """Tell whether that is the password.

        Raises:
            TooManyAttempts: ten in a minute were not.

        """
        now = time.monotonic()
        if len(self._failures) == _MOST_FAILURES and now - self._failures[0] < _PER:
            raise TooManyAttempts
        right = hmac.compare_digest(password.encode(errors="replace"), (self.password or "").encode())
        if not right:
            self._failures.append(now)
        return right

    def _signed(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


def check_address(config: Config) -> None:
    """Make sure that nobody else can steer the crawl.

    Raises:
        ConfigError: the dashboard would be open to a network, without a password.

    """
    address = config.dashboard_address
    if config.dashboard_port and not ip_address(address).is_loopback and config.dashboard_password is None:
        raise ConfigError(
            f"CRAWL_DASHBOARD_ADDRESS={address} would let everyone who reaches it steer the crawl: "
            "set CRAWL_DASHBOARD_PASSWORD, or leave the address out (127.0.0.1)"
        )
