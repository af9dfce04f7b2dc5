"""Every wait of a client for HTTP within one deadline: a server that sends a byte at a time does not outlast it.

The client's own timeout is one for each wait, and begins anew with every byte.
"""

from collections.abc import Callable
from typing import Any

PIECE = 1 << 16
"""Bytes that are sent in one go."""


def bound_waits(client: Any, left: Callable[[], float]) -> None:
    """Have every connection that a client of httpx2 makes from now on wait no longer than is left to the request."""
    for transport in {id(one): one for one in (client._transport, *client._mounts.values()) if one is not None}.values():
        transport._pool._network_backend = _Backend(transport._pool._network_backend, left)


class _Backend:
    """Makes connections."""

    def __init__(self, inner: Any, left: Callable[[], float]) -> None:
        self._inner, self._left = inner, left

    def connect_tcp(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> "_Stream":
        """A connection to a host and port."""
        return _Stream(self._inner.connect_tcp(*args, timeout=self._within(timeout), **kwargs), self._left)

    def connect_unix_socket(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> "_Stream":
        """A connection through a socket of this machine."""
        return _Stream(self._inner.connect_unix_socket(*args, timeout=self._within(timeout), **kwargs), self._left)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._inner.sleep(seconds)

    def _within(self, timeout: float | None) -> float:
        return max(0.001, min(self._left(), float("inf") if timeout is None else timeout))


class _Stream:
    """One connection."""

    def __init__(self, inner: Any, left: Callable[[], float]) -> None:
        self._inner, self._left = inner, left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, once something has."""
        found: bytes = self._inner.read(max_bytes, self._within(timeout, reading=True))
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        for start in range(0, len(buffer), PIECE):
            self._inner.write(buffer[start : start + PIECE], self._within(timeout, reading=False))

    def close(self) -> None:
        """End it."""
        self._inner.close()

    def start_tls(self, *args: Any, **kwargs: Any) -> "_Stream":
        """The same, encrypted."""
        return _Stream(self._inner.start_tls(*args, **kwargs), self._left)

    def get_extra_info(self, info: str) -> Any:
        """What is known of it."""
        return self._inner.get_extra_info(info)

    def _within(self, timeout: float | None, *, reading: bool) -> float | None:
        import httpcore2

        left = self._left()
        if left <= 0:
            raise httpcore2.ReadTimeout() if reading else httpcore2.WriteTimeout()
        bound = min(left, float("inf") if timeout is None else timeout)
        return None if bound == float("inf") else bound
