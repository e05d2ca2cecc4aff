"""Who may use the dashboard: its password, the cookie of a session, the token that every change carries."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque

LASTS_S = 30 * 86_400  # of a session
_MOST = 1000
_MOST_FAILURES, _PER_S = 10, 60.0  # wrong passwords in that time; after them nobody may try for a while


class TooManyAttempts(Exception):
    """Too many wrong passwords: none is checked for now."""


class Sessions:
    """Sessions in the memory of this process: they end with it, after 30 days, or when they are logged out.

    A session is a cookie and a token, both random. Without a password it only carries the token: whoever can reach
    the page may use it. Of those 1,000 are kept, the newest.
    """

    def __init__(self, password: str | None) -> None:
        self.password = password
        self._failures: deque[float] = deque(maxlen=_MOST_FAILURES)
        self._sessions: dict[str, tuple[str, float]] = {}  # by cookie its token, and when it expires

    def new(self) -> str:
        """Return the cookie of a new session."""
        cookie = secrets.token_urlsafe(24)
        self._sessions[cookie] = secrets.token_urlsafe(24), time.monotonic() + LASTS_S
        while len(self._sessions) > _MOST:
            del self._sessions[next(iter(self._sessions))]
        return cookie

    def end(self, cookie: str) -> None:
        """End a session, wherever its cookie is."""
        self._sessions.pop(cookie, None)

    def is_valid(self, cookie: str) -> bool:
        """Tell whether a cookie is that of a session."""
        return cookie in self._sessions and self._sessions[cookie][1] > time.monotonic()

    def token(self, cookie: str) -> str:
        """Return the token of a session, which its page knows, and no other site's."""
        return self._sessions[cookie][0]

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
