"""Bases of the results that a command or a study gives: typed, immutable, and with what nobody can
prove listed.
"""

import textwrap
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, model_validator

from brinell.store.standing import CLAIMED, RUN_CLAIMED, claimed_names


class Result(BaseModel):
    """Base of all result models: immutable, no unknown keys, no NaN, each field documented in the
    schema.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    def __repr__(self) -> str:
        """The name and the fields that fit on a line or two; lists and what is nested by their
        size.
        """
        parts = [f"{name}={_short(getattr(self, name))}" for name in type(self).model_fields]
        return (
            f"{type(self).__name__}({textwrap.shorten(', '.join(parts), 240, placeholder=' ...')})"
        )

    def __str__(self) -> str:
        """The answer in a line or two, of a result that has lines for a terminal."""
        return "\n".join(islice(self.lines(), 2)) if hasattr(self, "lines") else repr(self)

    def __dir__(self) -> list[str]:
        """Fields, properties and methods that are ours, without those of pydantic."""
        names = {*super().__dir__()} - {*dir(BaseModel)} - type(self).__class_vars__
        return sorted(name for name in names if not name.startswith("_"))

    def payload(self) -> dict[str, Any]:
        """The result as JSON has it: what the command prints with --json."""
        return self.model_dump(mode="json", by_alias=True)


def _short(value: object) -> str:
    if isinstance(value, BaseModel):
        return f"{type(value).__name__}(...)"
    if isinstance(value, list | tuple | dict) and len(value) > 1:
        return f"[{len(value)} of them]"
    return repr(value)


class ClaimingResult(Result):
    """Base of results of which a part is the word of whoever made the folder."""

    words: ClassVar[frozenset[str]] = frozenset(claimed_names({**CLAIMED, **RUN_CLAIMED}))
    """Names of fields, at any depth, that no verification recomputes."""

    claimed: list[str] = []
    """Fields that `brinell verify` takes from whoever made the folder, with dots between the
    parts."""

    @model_validator(mode="before")
    @classmethod
    def _list_claims(cls, data: Any) -> Any:
        return (
            {**data, "claimed": sorted(set(_claimed_fields(cls, cls.words, "")))}
            if isinstance(data, dict)
            else data
        )


def _claimed_fields(model: type[BaseModel], words: frozenset[str], prefix: str) -> Iterator[str]:
    """Paths of the fields of a model, and of the models in it, whose names are among `words`."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        if name in words:
            yield path
        else:
            for part in _models_in(field.annotation):
                yield from _claimed_fields(part, getattr(part, "words", words), f"{path}.")


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
