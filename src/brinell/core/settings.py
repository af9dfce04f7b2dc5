"""Checks of settings that several plug-ins share; each ValueError names the setting, its value and what it may be."""

from typing import Any

MOST_COUNT = 10_000_000
"""What a setting that counts something may be at most: steps, restarts, samples. A seed may be larger."""


def at_least(settings: Any, **least: float) -> None:
    """Refuse the first setting below its least value; None counts as not given.

    Raises:
        ValueError: there is one.
    """
    for name, smallest in least.items():
        value = getattr(settings, name)
        if value is not None and value < smallest:
            raise ValueError(f"{name} is {value}; it must be at least {smallest}")


def at_most(settings: Any, **most: float) -> None:
    """Refuse the first setting above its largest value; None counts as not given.

    Raises:
        ValueError: there is one.
    """
    for name, largest in most.items():
        value = getattr(settings, name)
        if value is not None and value > largest:
            raise ValueError(f"{name} is {value}; it must be at most {largest:,}")


def above_zero(settings: Any, *names: str) -> None:
    """Refuse the first setting that is not above 0; None counts as not given.

    Raises:
        ValueError: there is one.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} is {value}; it must be above 0")


def one_of(settings: Any, **choices: tuple[str, ...]) -> None:
    """Refuse the first setting that is none of its choices.

    Raises:
        ValueError: there is one.
    """
    for name, known in choices.items():
        value = getattr(settings, name)
        if value not in known:
            raise ValueError(f"{name} is {value!r}, not {' or '.join(known)}")
