"""What tests say of a refusal: where it was made, and which option is at fault; its wording stands
in tests/messages.txt.
"""

from collections.abc import Callable

from brinell.core.errors import BrinellError


def refused(code: str, option: str | None = None) -> Callable[[BrinellError], bool]:
    """A check for `pytest.raises`: the error is of this place, `module.function`, and about this
    option, where one is given.
    """

    def check(error: BrinellError) -> bool:
        assert error.code == code, f"refused by {error.code}: {error}"
        assert option is None or error.option == option, f"about option {error.option!r}: {error}"
        return True

    return check
