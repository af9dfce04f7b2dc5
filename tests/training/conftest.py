import pytest

from _training import SESSIONS


@pytest.fixture(autouse=True)
def sessions():
    """Every network of a loop is in a session, as in a hardening; without one it would answer in
    evaluation mode alone.
    """
    with SESSIONS:
        yield
