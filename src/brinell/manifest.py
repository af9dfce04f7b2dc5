"""Manifests as pydantic models, what of them nobody can prove, and the one-line message about a
damaged one.

Types are strict: a string is not accepted as a number, nor a bool as an integer. Unknown keys are
ignored. Validation of a list or a table ends at its first fault, so a hostile manifest costs no
more than to read it.
"""

import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

T = TypeVar("T")
MOST = 2**53
"""The largest integer: JSON parsers of other languages represent larger ones inexactly."""
LONGEST = 10**6
"""Values along one axis of an input at most, and classes, budgets and stages of a run."""
AT_ONCE = 100
"""Entries of a table that are validated together."""
MOST_CHARACTERS, MOST_PLACE = 40, 100
"""Characters of a wrong value, and of its place, that the line shows."""


def _validate_entries(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Validate the entries of a large table one by one, so that the first fault ends it."""
    if not isinstance(value, dict) or len(value) < AT_ONCE:
        return handler(value)
    return {
        key: validated
        for entry in value.items()
        for key, validated in handler(dict([entry])).items()
    }


@dataclass(frozen=True)
class Claimed:
    """Marks a field that no repetition finds again: it is the word of whoever made the folder."""

    reason: str
    """What it is, in a few words."""


TIMES = Claimed("wall times and dates")
MACHINE = Claimed("the versions and the machine")
Command = Annotated[str, Claimed("the command line that repeats it")]

Count = Annotated[int, Field(ge=0, le=MOST)]
Size = Annotated[int, Field(ge=1, le=LONGEST)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Listing = Annotated[list[T], Field(fail_fast=True)]
TableOf = Annotated[dict[str, T], WrapValidator(_validate_entries)]


class Content(BaseModel):
    """Base of what others wrote as JSON: strict, and with further keys if there are any."""

    model_config = ConfigDict(
        strict=True, frozen=True, use_attribute_docstrings=True, defer_build=True
    )


class RegionFacts(Content):
    """The part of inputs that attacks may change."""

    box: Listing[Listing[Count]]
    """First position and the one after the last, along each axis behind the channels."""
    mask: str
    """The values within the box, as hexadecimal digits of their bits; empty for all."""


class DomainFacts(Content):
    """The space that inputs live in."""

    kind: Literal["image", "signal", "video", "vector"]
    """Kind of the inputs."""
    shape: Listing[Size]
    """The shape of one input, channels first."""
    low: Number | Listing[Number]
    """The smallest value, of all or of each channel."""
    high: Number | Listing[Number]
    """The largest value, likewise."""
    levels: Annotated[int, Field(ge=2, le=MOST)] | None
    """Number of levels of a stored value; null if storage does not round."""
    columns: Listing[
        Annotated[tuple[str, Number, Number, bool, Listing[str], str], Field(strict=False)]
    ] = []
    """Name, zero, one, whether it is fixed, and categories of each column of a table or channel
    of a signal."""
    region: RegionFacts | None = None
    """The part of inputs that attacks may change; null for all."""

    @model_validator(mode="after")
    def _fits(self) -> "DomainFacts":
        """Refuse fields that contradict each other."""
        low = self.low if isinstance(self.low, list) else [self.low]
        high = self.high if isinstance(self.high, list) else [self.high]
        if not self.shape or any(len(bound) not in (1, self.shape[0]) for bound in (low, high)):
            raise misfit("has bounds for another number of channels than its shape has")

        # One bound for all channels is compared with each of the others.
        wide = max(len(low), len(high))
        if any(
            a >= b
            for a, b in zip(low * (wide // len(low)), high * (wide // len(high)), strict=True)
        ):
            raise misfit("has a lower bound that is not below the upper one")
        if len(self.shape) != {"image": 3, "signal": 2, "video": 4, "vector": 1}[self.kind]:
            raise misfit(f"has {len(self.shape)} axes, and its kind is {self.kind}")
        return self


class SamplingFacts(Content):
    """Recording parameters of signals."""

    rate: Annotated[float, Field(ge=1e-9, le=1e12)]
    """Values per second of each channel."""
    unit: str
    """The unit of the values, such as mV."""
    start: Number
    """The second of the first value."""
    leads: Listing[str]
    """The names of the channels."""


class DataFacts(Content):
    """Facts about the data."""

    spec: str
    """Spec of the data, as on the command line."""
    name: str
    """The name of the data."""
    digest: str
    """The hash of its content."""
    n: Count
    """Number of samples in the run."""
    total: Count
    """Number of samples in the data set."""
    select: str = ""
    """Selection of the samples."""
    domain: DomainFacts
    """The space that inputs live in."""
    sampling: SamplingFacts | None = None
    """Recording parameters of signals."""
    classes: Listing[str]
    """The names of the classes."""
    notes: Listing[str] = []
    """Notes of the data set."""


class ModelFacts(Content):
    """Facts about a model."""

    name: str
    """The name of the model."""
    spec: str = ""
    """Spec of the model, as on the command line."""
    digest: str
    """The hash of its weights, or of what else it is."""
    architecture: str | None
    """Name of the network."""
    parameters: Count | None
    """Number of parameters."""
    classes: Size
    """Number of classes."""
    access: Literal["labels", "scores", "gradients"]
    """Access that the model gives to an attack."""
    notes: Listing[str] = []
    """Notes of the model."""
    class_order: Listing[Annotated[int, Field(ge=-1, le=MOST)]] = []
    """For each logit its place in the model's own answer, or -1; empty unless classes were
    matched in another order."""


class Hardware(Content, extra="forbid"):
    """Facts about the machine, without further keys: no repetition would look at them."""

    device: str
    """The device of the model."""
    cpu: str
    """The name of the processor."""
    threads: Count
    """Threads of torch."""
    cores: Count | None
    """Cores of the processor."""


class Passes(Content):
    """Cost of the passes of a model, without further keys: no repetition would look at them."""

    model_config = ConfigDict(extra="forbid")

    forwards: Count
    """Forward evaluations."""
    backwards: Count
    """Backward evaluations."""


class Manifest(Content):
    """Fields of every manifest."""

    verb: str
    """The verb that made the folder."""
    version: Count = Field(alias="schema")
    """The version of the rows and of the manifest."""
    brinell: Annotated[str, MACHINE]
    """The version of Brinell."""
    made_here: Annotated[str | None, Claimed("the mark of whoever made it")] = None
    """The mark of whoever made it (design/0020-trust.md)."""
    files: TableOf[str] = {}
    """The digest of every file of rows, arrays and weights by its path in the folder."""


class GrowingManifest(Manifest):
    """Manifest of a folder that rows fill."""

    revision: Annotated[str | None, MACHINE]
    """The commit of its source."""
    created: Annotated[str, TIMES]
    """When it was begun."""
    finished: Annotated[str, TIMES]
    """When it was finished."""
    command: Command
    """The command line that repeats it."""
    request: dict[str, Any]
    """Every setting that was asked for."""
    versions: Annotated[TableOf[str | None], MACHINE]
    """The versions of the libraries."""
    hardware: Annotated[Hardware, MACHINE]
    """The machine."""
    answers: TableOf[str | None] = {}
    """Conversion of each model's answers to logits; null if they need none."""
    probes: TableOf[Passes] = {}
    """Cost of the checks before the attacks, by model."""
    cell: str
    """The hash of all that the rows depend on."""
    data: DataFacts
    """The data."""


class Facts(Content):
    """Base of what a manifest says of a run in addition to its request, data and models."""


class FolderManifest(GrowingManifest):
    """Manifest of a study that consists of a plan and pieces (`studies.kit`)."""

    models: Listing[ModelFacts]
    """The models."""
    more_models: Listing[ModelFacts] = []
    """Further models, which were asked and not studied."""
    expect: Share | None = None
    """The clean accuracy that the author of the models states, if it was given."""
    fit: TableOf[str] = {}
    """What is wrong with models that the data do not fit, by model."""
    derived_from: TableOf[str] = {}
    """Folders that it derives from, each with the digest of its manifest."""
    seconds: Annotated[Amount, TIMES]
    """Wall time of all pieces."""


def claims_in(model: type[BaseModel]) -> Iterator[tuple[str, Claimed]]:
    """The fields of a manifest, and of what it nests, that are claimed: names with dots."""
    for name, field in model.model_fields.items():
        marks = [mark for mark in field.metadata if isinstance(mark, Claimed)]
        if marks:
            yield field.alias or name, marks[0]
        else:
            for nested in models_in(field.annotation):
                for inner, mark in claims_in(nested):
                    yield f"{name}.{inner}", mark


def models_in(hint: Any) -> Iterator[type[BaseModel]]:
    """The models that a type names."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for part in get_args(hint):
        yield from models_in(part)


def is_claimed(hint: Any, place: Sequence[str | int]) -> bool:
    """True if a field of a manifest is claimed that stands at a place, or above it.

    Types decide, not names: a key that somebody chose, such as the name of a model, leads to the
    value of a table, whatever it is called.

    Args:
        hint: the model of the manifest.
        place: keys of tables and fields, and numbers in lists.
    """
    if not place:
        return False
    step = place[0]
    rest = place[1:]
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        for name, field in hint.model_fields.items():
            if step == (field.alias or name):
                marked = any(isinstance(mark, Claimed) for mark in field.metadata)
                return marked or is_claimed(field.annotation, rest)
        return False

    origin = get_origin(hint)
    parts = get_args(hint)
    if origin is Annotated:
        return is_claimed(parts[0], place)
    if origin is dict:
        return isinstance(step, str) and is_claimed(parts[1], rest)
    if origin is list:
        return isinstance(step, int) and is_claimed(parts[0], rest)
    return any(is_claimed(part, place) for part in parts)


def misfit(text: str) -> PydanticCustomError:
    """The error about values that are each well formed but contradict each other.

    The text follows the name of their position.
    """
    return PydanticCustomError("misfit", text)


def fault(content: Any, model: type[BaseModel]) -> str | None:
    """The first error in a content, as words that follow the name of its file; None if
    it is valid.
    """
    try:
        model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        steps = [
            f"[{step}]"
            if isinstance(step, int)
            else f".{step if step.isidentifier() else abbreviate(step)}"
            for step in first["loc"]
        ]
        place = "".join(steps).removeprefix(".")[:MOST_PLACE]

        # Messages of our own rules follow the name of the field without a value.
        if first["type"] == "misfit":
            return f"{place or 'it'} {first['msg']}"
        return (
            f"{place or 'it'} is {abbreviate(first['input'])}: "
            f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        )
    return None


def abbreviate(value: Any) -> str:
    """A value of others in a few characters, none of which is a control character."""
    text = reprlib.repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
