"""What a user asks for: options of the command line, keys of a TOML file and keywords of the Python call at once.

Each is a field of a request, and the text under the field is its help. A request is importable without torch, so that `brinell
VERB --help` stays fast.
"""

from dataclasses import fields
from typing import Annotated, Any, Literal, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from brinell.core.settings import MOST_COUNT, Names, Plain, mark_of

JOINED = "joined"
"""Marks a text that is a list in itself: an option that is given several times is the one list of all of them."""
MOST_NAMED = 1000
"""Models, attacks, detectors and the like in one request."""
IN_MEMORY = "in-memory"
"""What a request says in place of a spec for what was given in Python."""

DataSpec = Annotated[str, Names("dataset")]
ModelSpec = Annotated[str, Names("model")]
AttackSpec = Annotated[str, Names("attack")]
DistanceSpec = Annotated[str, Names("distance")]
Budgets = Annotated[str, Names("budgets")]
Folder = Annotated[str, Names("folder")]
File = Annotated[str, Names("file")]
"""What settings name; trust, spelling and the reference read it from the field (`names_of`)."""

Seed = Annotated[int, Field(ge=0, description="The seed of every random number.")]
BatchSize = Annotated[int, Field(ge=1, description="The most inputs shown to the model at once.")]
Device = Annotated[Plain, Field(description="The device: cpu, cuda, cuda:1, mps, or auto, which takes a GPU where there is one.")]
"""Options that several verbs have; what belongs to one verb has its text under its field."""


class BaseRequest(BaseModel):
    """Base of all requests: nothing beyond the fields; one text in place of a tuple of texts stands for a tuple of one."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any, info: ValidationInfo) -> Any:
        many = get_origin(cls.model_fields[str(info.field_name)].annotation) is tuple
        return (value,) if many and isinstance(value, str) else value

    @field_validator("*")
    @classmethod
    def _bounded(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int) and value > MOST_COUNT and info.field_name != "seed":
            raise PydanticCustomError("most", f"it is at most {MOST_COUNT:,}")
        if isinstance(value, tuple) and len(value) > MOST_NAMED:
            raise PydanticCustomError("most", f"at most {MOST_NAMED:,} are given, and these are {len(value):,}")
        return value

    @classmethod
    def names_of(cls, setting: str) -> Names | None:
        """What a setting names; None for a text field without a mark, and for what is no field."""
        field = cls.model_fields.get(setting)
        return None if field is None else mark_of(field.annotation, field.metadata)

    def settings(self, kind: type[Any]) -> dict[str, Any]:
        """The values of the fields that this request has in common with a dataclass of settings."""
        return {field.name: getattr(self, field.name) for field in fields(kind) if field.name in type(self).model_fields}


class Request(BaseRequest):
    """What `brinell audit` is asked for."""

    data: DataSpec = "digits"
    """The data: FILE.npz, FILE.csv, a folder that holds a folder for each class, or by name as digits, cifar10:DIR, mnist:DIR and
    what `brinell plugins dataset` lists; options follow as ?option=value."""
    model: tuple[ModelSpec, ...] = ("digits-cnn",)
    """A model: model.py:FACTORY?weights=FILE, where FACTORY is a function that returns the module, FILE.onnx, FILE.skops, or by
    name as digits-cnn, timm:NAME?weights=FILE and what `brinell plugins model` lists."""
    surrogate: ModelSpec | None = None
    """A model whose gradients the attacks of fast follow as well, named like --model: the same network without its defence, say.
    It has the same classes."""
    norm: DistanceSpec = "linf"
    """The distance in which eps is measured: linf, l2, l1, l0, or embedding:FILE."""
    eps: Annotated[Budgets | None, JOINED] = None
    """The budgets: 8/255, a list 1/255,2/255, or from:to:points as in 0:8/255:9; recommended, or recommended:FOLDER of
    brinell epsilon, gives each sample its own. Default: the field's usual budgets for images."""
    attack: tuple[AttackSpec, ...] = ("fast",)
    """A cascade, fast, standard (also autoattack), slides, plus, rand or black-box; or an attack, such as apgd-ce or
    pgd?steps=50&restarts=3. They run in the order given, each on the samples that are still robust."""
    targeted: Plain | None = None
    """The class that the attacks aim at: a class by name or number, least-likely, or random. Samples of that class are left out.
    Default: untargeted, any wrong class counts."""
    reject_class: Plain | None = None
    """The class by which the model rejects inputs, by name or number, or last. An input that is rejected is no adversarial
    example; a clean one that is rejected is not correct. Default: none, every class beside the true one counts."""
    samples: int | None = Field(default=None, ge=1)
    """The number of samples. Default: 1000, or all where there are fewer."""
    select: Literal["first", "stratified", "random"] | None = None
    """Which samples: the first, or drawn with the seed, stratified by class or at random. Default: the first of published test
    sets (mnist, cifar10, bench, digits), and stratified of all else."""
    seed: Seed = 0
    batch_size: BatchSize = 128
    queries: int | None = Field(default=None, ge=1)
    """The forward evaluations that each attack may spend on a sample at each eps. Default: no limit."""
    precision: Literal["float32", "bf16"] = "float32"
    """The precision of the gradients: float32 or bf16, which is cheaper for large networks on some processors. Every success is
    judged in float32."""
    device: Device = "auto"
    isolate: bool = False
    """Run attacks that are files in processes of their own: with the samples and the oracle, without the model and the ledger."""
