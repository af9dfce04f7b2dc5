"""Requests of users: the options of the command line, keys of a TOML file and keywords of the
Python call.

Each is a field of a request, and the text under the field is its help. A request is importable
without torch, so that `brinell VERB --help` stays fast.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from brinell.core.errors import RequestError, option
from brinell.core.numbers import parse_decimal
from brinell.core.settings import MOST_COUNT, MOST_SEED, Names, is_text, mark_of, number_type
from brinell.core.user_files import check_foreign, expand_home

JOINED = "joined"
"""Marks a text that holds a list: repeated options are joined to one list."""
MOST_NAMED = 1000
"""Largest number of values (models, attacks, ...) of one setting."""
IN_MEMORY = "in-memory"
"""Spec of an object that was passed from Python."""

DataSpec = Annotated[str, Names("dataset")]
ModelSpec = Annotated[str, Names("model")]
AttackSpec = Annotated[str, Names("attack")]
DistanceSpec = Annotated[str, Names("distance")]
Budgets = Annotated[str, Names("budgets")]
Folder = Annotated[str, Names("folder")]
File = Annotated[str, Names("file")]
"""Types of texts that refer to something; trust, spelling and the reference read the type from
the field (`names_of`)."""

ALL = "all"
"""A number of samples: as many as the data have."""
METHODS = ("first", "stratified", "random")
CASCADES_OF_COUNTS = {"l0": "sparse", "pixels": "sparse", "patch": "patch"}
"""The cascade in place of `fast` in the distances in which none of its attacks works."""


def _check_samples(value: Any) -> Any:
    """A number of samples as a number, behind a method as it is."""
    if value is None or value == ALL:
        return value

    method, colon, count = value.rpartition(":") if isinstance(value, str) else ("", "", value)
    if isinstance(count, str) and count.isdecimal():
        count = int(count)
    # True is an int of Python, and no number of samples.
    is_count = isinstance(count, int) and not isinstance(count, bool) and count > 0
    if not is_count or (colon and method not in METHODS):
        raise PydanticCustomError(
            "samples",
            "it must be a whole number above 0, all, or first:N, stratified:N or random:N",
        )
    return value if colon else count


SampleCount = Annotated[int | str | None, BeforeValidator(_check_samples)]
"""A number of samples, behind the way to select them where one is named, or all; None for the
default of the verb."""
Seed = Annotated[int, Field(ge=0, description="The seed of every random number.")]
BatchSize = Annotated[int, Field(ge=1, description="The most inputs shown to the model at once.")]
DEVICES = ("auto", "cpu", "cuda", "mps", "xpu", "hpu", "mtia", "xla", "meta")
"""Names of devices, to which :NUMBER may be added."""


def _check_device(name: str) -> str:
    kind, colon, number = name.partition(":")
    if kind not in DEVICES or (colon and not number.isdecimal()):
        raise PydanticCustomError("device", f"a device is {', '.join(DEVICES[:4])} or cuda:1")
    return name


Device = Annotated[
    str,
    AfterValidator(_check_device),
    Field(
        description="The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where "
        "there is one."
    ),
]
Expect = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="The clean accuracy that the author of the model states, 0 to 1, such as 0.93: "
        "the check of clean accuracy fails if the samples exclude it. Default: none is stated.",
    ),
]
"""Options that several verbs have; what belongs to one verb has its text under its field."""


def _read_numbers(annotation: Any, value: Any) -> Any:
    """Texts of a field of numbers as numbers, fractions and percentages too.

    Anything else is returned as it is, for pydantic to refuse.
    """
    kind = number_type(annotation)
    if kind is None:
        return value
    if isinstance(value, list | tuple):
        return type(value)(_read_numbers(annotation, part) for part in value)
    try:
        return (int if kind is int else parse_decimal)(value) if isinstance(value, str) else value
    except ValueError:
        return value


def split_budget(norm: str, eps: Any) -> tuple[str, Any]:
    """The distance and the budget that a norm such as patch:5 names together."""
    name, colon, side = norm.partition(":")
    if name != "patch" or not colon:
        return norm, eps
    if not side.isdecimal() or int(side) < 1:
        raise RequestError(
            f"norm {norm} names no side: write a whole number of places, such as patch:5"
        )
    if eps is not None:
        raise RequestError(
            f"norm {norm} says how large the patch is, and eps is {eps}, too: leave it out, or "
            f"write {option('norm', 'patch')} for the sides that {option('eps')} lists"
        )
    return name, side


def _check_text(text: str, *, is_path: bool) -> None:
    """Refuse a text that no file and no name can have, and a path of another system."""
    if not is_text(text):
        raise PydanticCustomError("text", "a text holds neither NUL nor half a character")
    if is_path:
        try:
            check_foreign(text)
        except RequestError as error:
            raise PydanticCustomError("path", "{reason}", {"reason": str(error)}) from None


class BaseRequest(BaseModel):
    """Base of all requests: nothing beyond the fields; one text or number in place of a tuple
    stands for a tuple of one.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _settle_norm(cls, values: Any) -> Any:
        """The budget that a norm states, and the cascade of a norm in which `fast` does not work."""
        norm = values.get("norm") if isinstance(values, dict) else None
        if not isinstance(norm, str) or cls.names_of("norm") is None:
            return values
        name, eps = split_budget(norm, values.get("eps"))
        if name != norm:
            values = {**values, "norm": name, "eps": eps}
        # An attack that the user named comes later in the table, and so wins.
        attack = cls.model_fields.get("attack")
        if attack is not None and attack.default == ("fast",) and name in CASCADES_OF_COUNTS:
            values = {"attack": CASCADES_OF_COUNTS[name], **values}
        return values

    @field_validator("*", mode="before")
    @classmethod
    def _wrap_single_text(cls, value: Any, info: ValidationInfo) -> Any:
        """A single text, or a single number of a field of numbers, stands for a tuple of one."""
        field = cls.model_fields[str(info.field_name)]
        value = _read_numbers(field.annotation, value)
        if get_origin(field.annotation) is not tuple:
            return value

        is_number = isinstance(value, int) and number_type(field.annotation) is int
        if is_number or isinstance(value, str):
            return (value,)
        # Others than these may have no end.
        if not isinstance(value, list | tuple | set | frozenset | range):
            raise PydanticCustomError("list", "give one, or several in a list")
        if not value and field.get_default() != ():
            raise PydanticCustomError("list", "give at least one")
        return value

    @field_validator("*")
    @classmethod
    def _check_limits(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse counts and lists above the limits, and texts that no file and no name can have."""
        mark = cls.names_of(str(info.field_name))
        is_path = mark is not None and mark.kind in ("folder", "file")
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str):
                _check_text(text, is_path=is_path)

        most = MOST_SEED if info.field_name == "seed" else MOST_COUNT
        if isinstance(value, int | float) and value > most:
            raise PydanticCustomError("most", f"it is at most {most:,}")
        if isinstance(value, tuple) and len(value) > MOST_NAMED:
            raise PydanticCustomError(
                "most", f"at most {MOST_NAMED:,} are given, and these are {len(value):,}"
            )
        return value

    @classmethod
    def with_paths(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values of a request whose paths and specs have home folders in full; the type of a field
        says whether it names one.
        """

        def full(value: Any) -> Any:
            return expand_home(str(value)) if isinstance(value, str | PurePath) else value

        def all_full(value: Any) -> Any:
            return type(value)(map(full, value)) if type(value) in (list, tuple) else full(value)

        expanded = dict(values)
        for name, value in values.items():
            mark = cls.names_of(name)
            if mark is not None and mark.kind:
                expanded[name] = all_full(value)
        return expanded

    @classmethod
    def names_of(cls, setting: str) -> Names | None:
        """The mark of a setting; None for a field without a mark and for an unknown setting."""
        field = cls.model_fields.get(setting)
        return None if field is None else mark_of(field.annotation, field.metadata)

    def settings(self, kind: type[Any]) -> dict[str, Any]:
        """The values of the fields that this request has in common with a dataclass of settings."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(kind)
            if field.name in type(self).model_fields
        }


class FitOptions(BaseRequest):
    """Options of studies that ask models about data, which no folder keeps."""

    expect: Expect = None


def count_samples(samples: int | str | None, total: int, default: int | None = None) -> int:
    """The number of samples that a setting takes of `total`: at most as many as there are.

    It stands alone or behind the last colon, as in random:500.
    """
    if samples == ALL:
        return total
    return min(total, int(str(samples or default or total).rpartition(":")[2]))


def as_many(samples: int | str | None, count: int) -> int | str:
    """A setting of `count` samples that are selected as another setting says."""
    method = str(samples or "").rpartition(":")[0]
    return f"{method}:{count}" if method else count


class Request(BaseRequest):
    """Request of `brinell audit`."""

    data: DataSpec = "digits"
    """The data: FILE.npz, FILE.csv, a folder that holds a folder for each class, or by name as
    digits, cifar10:DIR, mnist:DIR and what `brinell plugins dataset` lists; options follow as
    ?option=value."""
    model: tuple[ModelSpec, ...] = ("digits-cnn",)
    """A model: model.py:FACTORY?weights=FILE, where FACTORY is a function that returns the
    module, FILE.onnx, FILE.skops, or by name as digits-cnn, timm:NAME?weights=FILE and what
    `brinell plugins model` lists."""
    norm: DistanceSpec = "linf"
    """The distance in which eps is measured: linf, l2, l1, l0, pixels, embedding:FILE, or patch,
    where eps is the side of one square anywhere; patch:5 states both."""
    eps: Annotated[Budgets | None, JOINED] = None
    """The budgets: 8/255, a list 1/255,2/255, or from:to:points as in 0:8/255:9; recommended, or
    recommended:FOLDER of brinell epsilon, gives each sample its own. Default: the field's usual
    budgets for images."""
    attack: tuple[AttackSpec, ...] = ("fast",)
    """A cascade, fast, standard (also autoattack), slides, plus, rand, black-box, sparse or patch;
    or an attack, such as apgd-ce or pgd?steps=50&restarts=3. They run in the order given, each on
    the samples that are still robust. For masks sea, too. Default: fast, in l0 and pixels sparse,
    in patch patch."""
    samples: SampleCount = None
    """The number of samples, or all; behind first:, stratified: (drawn by class) or random:
    where you choose how, as in random:500. Default: 1000, or all where there are fewer, the
    first of published test sets (mnist, cifar10, bench, digits), else stratified."""
    targeted: str | None = None
    """The class that the attacks aim at: a class by name or number, least-likely, or random.
    Samples of that class are left out. Default: untargeted, any wrong class counts."""
    queries: int | None = Field(default=None, ge=1)
    """The forward evaluations that each attack may spend on a sample at each eps. Default: no
    limit."""
    seed: Seed = 0
    device: Device = "auto"
    surrogate: tuple[ModelSpec, ...] = ()
    """A network of the same task, named like --model, whose gradients attacks follow: rlab,
    which learns from the answers of the model how far to trust it, and those of fast as well. It
    has the same classes. Several are named by repeating it."""
    criterion: str | None = None
    """What counts in place of misclassification: top5, where the true class is not among the
    first five, or a threshold on a probability, "true<0.1" (the class is wrong, and the true one
    has less than 0.1) or "class=cat>0.9" (inputs of other classes with more than 0.9 for cat).
    The run then states the share of inputs that do not meet it, which is not robust accuracy.
    For masks pixels:0.5, iou:0.3, gone:CLASS or target:CLASS; for boxes missed:0.5, false:20,
    mislabelled, misplaced, joined by +, with @0.6 for the score of shown boxes. The task of
    another package says what it takes. Default: misclassification, all pixels, all four errors
    of boxes, or the usual one of the task."""
    expect: Expect = None
    until: str | None = None
    """End early: at a half-width of the interval of robust accuracy at the largest eps, such as
    0.02, or once it is decided whether it reaches a threshold, such as robust:0.4. The samples come
    in waves, with a look after each; the intervals hold at every look. Default: all samples."""
    reject_class: str | None = None
    """The class by which the model rejects inputs: a name, a number, or last. A rejected input
    is not an adversarial example, and a rejected clean input is not correct. Default: no reject
    class, so every class except the true one counts."""
    batch_size: BatchSize = 128
    precision: Literal["float32", "tf32"] = "float32"
    """The precision of the gradients: float32, or tf32, several times faster on GPUs. Every
    success is judged in float32."""
