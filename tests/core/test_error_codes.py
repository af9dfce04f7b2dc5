import copy

import pytest

from _refusals import refused
from brinell.core.errors import RequestError, UnreachableError
from brinell.engine.eps_grid import parse_eps


class Own(RequestError):
    """A subclass with a constructor of its own."""

    def __init__(self, number):
        super().__init__(f"number {number}")


def refuse(kind, *arguments):
    raise kind(*arguments)


class Refusing:
    def refuse(self):
        return [refuse_all() for refuse_all in [lambda: refuse(Own, 3)]]


def test_the_code_is_the_place():
    for kind, arguments in (
        (RequestError, ("no",)),
        (UnreachableError, ("no", "one", "there")),
        (Own, (3,)),
    ):
        with pytest.raises(kind) as failure:
            refuse(kind, *arguments)
        assert failure.value.code == f"{__name__}.refuse"
    with pytest.raises(RequestError, check=refused(f"{__name__}.refuse")):
        Refusing().refuse()
    with pytest.raises(RequestError, check=refused("engine.eps_grid._number")):
        parse_eps("nothing")


def test_a_code_survives_a_copy():
    with pytest.raises(RequestError) as failure:
        refuse(RequestError, "no")
    assert copy.copy(failure.value).code == failure.value.code


def test_the_check_notices_another_place_and_another_option():
    error = RequestError("no", option="eps")
    assert refused(error.code)(error) and refused(error.code, "eps")(error)
    for code, option in ((error.code, "norm"), ("elsewhere", None)):
        with pytest.raises(AssertionError):
            refused(code, option)(error)
