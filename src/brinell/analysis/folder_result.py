"""Bases of the results of a command or a study: typed, immutable, with what nobody can prove."""

import textwrap
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator

from brinell.core.record import Records, claimed_columns
from brinell.manifest import claims_in, models_in
from brinell.store.run_manifest import RunManifest


class Result(BaseModel):
    """Base of all results: immutable, no unknown keys, no NaN, each field documented."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    def __repr__(self) -> str:
        """The name and the fields that fit on a line or two; what is nested by its size."""
        parts = [f"{name}={_short(getattr(self, name))}" for name in type(self).model_fields]
        fields = textwrap.shorten(", ".join(parts), 240, placeholder=" ...")
        return f"{type(self).__name__}({fields})"

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
    """A value of a field; what is nested by its type or its size."""
    if isinstance(value, BaseModel):
        return f"{type(value).__name__}(...)"
    if isinstance(value, list | tuple | dict) and len(value) > 1:
        return f"[{len(value)} of them]"
    return repr(value)


class ClaimingResult(Result):
    """Base of results of which a part is the word of whoever made the folder."""

    claimed_names: ClassVar[frozenset[str]] = claimed_columns(Records) | {
        name.rpartition(".")[2] for name, _ in claims_in(RunManifest)
    }
    """Names of fields, at any depth, that no verification recomputes."""

    claimed: list[str] = []
    """Fields that `brinell verify` takes from whoever made the folder, with dots between the
    parts."""

    @model_validator(mode="before")
    @classmethod
    def _list_claims(cls, data: Any) -> Any:
        """List the fields that nobody can prove."""
        if not isinstance(data, dict):
            return data
        return {**data, "claimed": sorted(set(_claimed_fields(cls, cls.claimed_names, prefix="")))}


def _claimed_fields(
    model: type[BaseModel], claimed_names: frozenset[str], prefix: str
) -> Iterator[str]:
    """Paths of the fields of a model, and of the models in it, whose names are `claimed_names`."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{name}"
        if name in claimed_names:
            yield path
        else:
            for part in models_in(field.annotation):
                names = getattr(part, "claimed_names", claimed_names)
                yield from _claimed_fields(part, names, f"{path}.")
