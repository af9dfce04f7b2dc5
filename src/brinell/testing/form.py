"""The form that plugins of every kind share: a frozen dataclass of settings that survives JSON."""

import dataclasses
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from brinell.core.contracts import Access
from brinell.core.domain import KINDS
from brinell.core.errors import BrinellError, ContractError


def demand(subject: str, holds: bool, rule: str) -> None:
    """Raise ContractError if the subject breaks a rule.

    Raises:
        ContractError: the rule does not hold; the line says who broke it.
    """
    if not holds:
        raise ContractError(f"{subject} {rule}")


@contextmanager
def contained(subject: str, place: str = "") -> Iterator[None]:
    """Turn what a plug-in raises beyond our errors into a ContractError of one line.

    `place` says on which inputs.
    """
    try:
        yield
    except BrinellError:
        raise
    except Exception as error:
        raise ContractError(
            f"{subject} failed with {type(error).__name__}: {error}{place}"
        ) from error


def check_form(plugin: Any, declares: tuple[str, ...], synonyms: Mapping[str, str]) -> None:
    """The class is a frozen dataclass whose settings are keyword-only and have defaults.

    Args:
        plugin: the class.
        declares: attributes that it must have.
        synonyms: names that a setting may not have, and the word or the place that the idea has
            here.

    Raises:
        ContractError: the first rule that is broken.
    """
    name = getattr(plugin, "__name__", str(plugin))
    parameters = getattr(plugin, "__dataclass_params__", None)
    demand(name, getattr(parameters, "frozen", False), "is no frozen dataclass")
    for field in dataclasses.fields(plugin):
        missing = dataclasses.MISSING
        has_default = field.default is not missing or field.default_factory is not missing
        rule = f"{field.name} must be keyword-only and have a default"
        demand(f"{name}: setting", field.kw_only and has_default, rule)
        if field.name in synonyms:
            raise ContractError(
                f"{name}: setting {field.name} has another name here: {synonyms[field.name]}"
            )

    for attribute in declares:
        demand(name, hasattr(plugin, attribute), f"does not declare {attribute}")
    if "access" in declares:
        is_access = isinstance(plugin.access, Access)
        demand(f"{name}:", is_access, "access must be LABELS, SCORES or GRADIENTS")
    if "domains" in declares:
        are_kinds = bool(plugin.domains) and plugin.domains <= set(KINDS)
        demand(f"{name}:", are_kinds, f"domains must be some of {', '.join(KINDS)}")


def check_settings(instance: Any) -> None:
    """The settings can be written as JSON and make an equal instance again.

    Those that are plugins are checked by themselves.

    Raises:
        ContractError: they cannot.
    """
    name = type(instance).__name__
    parts = {
        field.name: getattr(instance, field.name)
        for field in dataclasses.fields(instance)
        if field.metadata.get("plugin")
    }
    values = {key: value for key, value in dataclasses.asdict(instance).items() if key not in parts}

    try:
        # As a worker or a record rebuilds it.
        rebuilt = type(instance)(**json.loads(json.dumps(values)), **parts)
    except (TypeError, ValueError) as error:
        raise ContractError(f"{name} has settings that do not survive JSON: {error}") from None
    demand(name, rebuilt == instance, "has settings that come back from JSON as others")


def generator_states() -> tuple[Any, ...]:
    """The states of the global random generators, from which no plug-in may draw."""
    _, keys, *position = np.random.get_state(legacy=True)  # noqa: NPY002 - it is read, never set
    return torch.get_rng_state().tolist(), random.getstate(), keys.tolist(), position  # type: ignore[union-attr]
