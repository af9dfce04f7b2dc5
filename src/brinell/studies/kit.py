"""The record of a study, from which its command, Python call, folder and documentation are made.

A study is a package in `brinell.studies`, or in an installed package that declares an entry point
of the group `brinell.study`. Its `__init__` holds the record as `STUDY` and imports only the
request, so `--help` and completion stay fast. Everything else is referenced as `module:function` of
the package and imported on use.
"""

import itertools
import operator
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brinell.engine.piece import Piece as Piece
from brinell.engine.request import IN_MEMORY, BaseRequest, FitOptions

if TYPE_CHECKING:
    import torch

    from brinell.core.contracts import Dataset
    from brinell.core.model import Model
    from brinell.core.record import Array
    from brinell.engine.executor import Channel, Pool
    from brinell.engine.progress import Progress
    from brinell.engine.rank_pool import Crew
    from brinell.engine.selection import Selection
    from brinell.manifest import Facts


Reference = str | Callable[..., Any] | type[Any]
"""A function or a class: the object itself, or `module:name` within the package of the study,
imported on first use."""
WORK = "brinell.studies.work"
"""The module that carries out a study of the kit: named, never imported, since it needs torch."""
SERVING = "brinell.studies.serving:open_pool"
"""The function that starts the workers of a call, named for the same reason."""
GROUPS = {
    "train": "Train an agent of the attack rlab, a generator of inputs, or a learned distance."
}


class Output(Enum):
    """Kind of output of a study."""

    FOLDER = "a folder, by default a fresh one under runs/"
    FILE = "one file, which must be named"
    ANSWER_ONLY = "nothing but its answer"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Resolved plan of a study; a study adds fields in a subclass."""

    dataset: "Dataset"
    selection: "Selection"
    ids: "Array"
    """(n,) int64: the selected samples that can be read."""
    labels: "Array"
    """(n,) int64: their labels."""
    models: "Mapping[str, Model]"
    """Models by name: for `pieces` on the device, with logits as answers."""
    device: "torch.device"
    facts: "Facts | None" = None
    """Facts for the manifest in addition to request, data, models and machine."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The same as JSON values, without a class of facts."""
    more_models: "Mapping[str, Model]" = field(default_factory=dict)
    """Further models by setting and name, such as `judge digits-cnn`, that are asked and not
    studied; prepared like `models`."""
    identity: Mapping[str, Any] = field(default_factory=dict)
    """Everything that the rows depend on in addition to request, data, samples and models: JSON
    values."""
    folder: Path = Path()
    """Folder for the additional files of pieces in this process; set for `pieces`."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """One verb of Brinell.

    With `rows` the kit does most of the work: `run:pieces` gives `(Plan, Call) -> [Piece]`, or is a
    generator where pieces depend on answers (`engine.piece.Pieces`), and
    `result:summarise` gives `(Folder) -> result`, a `studies.result.FolderResult`. Without, `run`
    does everything. The module `run` may hold more:

    - `make_plan`: `(Call) -> Plan`, in place of the kit's.
    - `LAYOUT`, `open_result`: the `store.folder.Layout` of a folder without rows, and its result.
    - `repeat`: `(Call, folder) -> anything`, carries the call of a folder out again for
      verification, where `run` would be too dear. It may take from the folder what `claimed` lists.
    - `repetition`: `(Call, folder, Comparison) -> studies.differences.Repetition`, in place of
      `repeat`, for a study that is not carried out again on all samples.
    - `faults`: `(folder, manifest) -> [store.table.Violation]`, rules that a folder breaks.
    - `sources`: `(folder, manifest) -> folders` from which the folder is made, named in its
      manifest by digest: verification verifies them, and writes the texts again from a copy of the
      folder; `write_page` then takes where that lay, too.
    - `data_of`: `(settings, trust) -> spec`, the data of models in memory, where no setting names
      them; `trust` is the folder from elsewhere that may be used.
    """

    package: str = ""
    """The package of the study. Default: the module that holds the request."""
    verb: str
    """The command: a literal, since it is read without an import. The Python call has
    underscores in place of hyphens. A verb of two words is a command of a group, or has none: it
    is a folder that the command of the first word writes."""
    request: type[BaseRequest]
    """Type of the request; its fields are the options of the command and the keywords of the
    call."""
    keeps_region: bool = False
    """True if it changes inputs by attacks alone, so that data may restrict them to a region."""
    checks_fit: bool = True
    """True if a study with `rows` begins with the check whether its models and data fit."""
    options: type[BaseRequest] | None = None
    """How a call is carried out, beside what is asked for: further options, which no folder
    keeps."""
    result: Reference
    """The type of the result, a pydantic model: what `--json` prints, with `lines()` for a
    terminal. It may have `exit_code`, `rates()` by metric for a gate, `cautions()` that a caller
    from Python must see, and `printed`, the schemas of what is printed in its place."""
    rows: Reference | None = None
    run: Reference = ""
    """`(Call) -> result`: carries a call out. Default: the kit's with `rows`, else
    `run:carry_out`."""
    table_of: Reference | None = None
    """The `store.table.FolderTable` of its folders, where others than the kit know it, too.
    Default: made from request, rows and facts."""
    examples: tuple[str, ...]
    """Commands as one types them, for the help."""
    claimed: tuple[tuple[str, str], ...] = ()
    """Files that verification takes on trust, by their paths in the folder, with the reasons;
    fields of the manifest and columns of rows say so where they are declared."""
    claimed_keys: tuple[tuple[tuple[str, ...], str], ...] = ()
    """Keys of the manifest that it takes on trust and no type declares, with the reasons."""
    positional: tuple[str, ...] = ()
    """The settings that come first, without their names."""
    memory: tuple[str, ...] = ("model", "data")
    """Settings in whose place Python may give an object in memory."""
    needs_inputs: bool = False
    """True if the Python call requires a model and data, although the command has defaults for
    both."""
    output: Output = Output.FOLDER
    resume: bool | None = None
    """True if a call can be resumed. Default: with `rows`."""
    hosts: bool = False
    """True if other commands keep their folders in its own, which are verified by themselves."""
    ignored: tuple[str, ...] = ("batch_size", "device")
    """Settings that change no row of the pieces: a folder may be resumed with others."""
    of_tasks: "Study | None" = None
    """The form of the study for models that answer more than a class, such as masks or boxes: it
    has the same command and request, and rows, figures and folders of its own. Its verb is that of
    the command and a second word, which its folders name. Without one, such data are refused."""

    def __post_init__(self) -> None:
        kit = self.rows is not None
        run = self.run or (f"{WORK}:carry_out" if kit else "run:carry_out")
        package, resume = (
            self.package or self.request.__module__,
            kit if self.resume is None else self.resume,
        )
        fits = kit and self.checks_fit and "model" in self.request.model_fields
        options = FitOptions if fits and self.options is None else self.options
        values = {"run": run, "resume": resume, "package": package, "options": options}
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the record is frozen for everybody else

    def function(self, name: str) -> Any:
        """What the module `run` of the study may hold under a name; None if it does not."""
        module = f"{self.package}.run"
        try:
            return getattr(import_module(module), name, None)
        except ModuleNotFoundError as error:
            # A study that names its function need not have the module.
            if error.name != module:
                raise
            return None

    def table(self) -> Any:
        """The format of a folder with rows."""
        if self.table_of is not None:
            return self.resolve(self.table_of)
        from pydantic import create_model

        from brinell.manifest import FolderManifest
        from brinell.store.folder import Layout
        from brinell.store.table import FolderTable

        result = self.resolve(self.result)
        fields: dict[str, Any] = {"request": (self.request, ...)}
        if "facts" in result.model_fields:
            fields["facts"] = (result.model_fields["facts"].annotation, ...)
        manifest = create_model(
            f"{self.request.__name__}Manifest", __base__=FolderManifest, **fields
        )
        layout = Layout(
            verb=self.verb,
            noun=f"{self.verb} study",
            version=1,
            manifest=manifest,
            derived=result.beside,
        )
        return FolderTable(layout, self.resolve(self.rows or ""))

    @property
    def workers(self) -> bool:
        """True if workers on other machines can do the work."""
        return bool(self.resume) and self.output is Output.FOLDER

    @property
    def leaves_folder(self) -> bool:
        """True if there is a format of its folder."""
        if self.rows is not None or self.output is not Output.FOLDER:
            return self.rows is not None
        return self.function("LAYOUT") is not None

    @property
    def layout(self) -> Any:
        """The `store.folder.Layout` of its folder."""
        return self.function("LAYOUT") if self.rows is None else self.table().layout

    def open(self, folder: Path, *place: Path) -> Any:
        """The result of a folder, from its records alone; `place` is where a folder without rows
        lay before it was copied.
        """
        if self.rows is None:
            return self.function("open_result")(folder, *place)
        return self.summarise(self.table().read(folder))

    def summarise(self, content: Any) -> Any:
        """The result of the content of a folder, a `store.table.Folder`."""
        manifest = content.manifest
        request = self.request.model_validate(manifest["request"])
        facts = self.resolve(self.result).model_fields.get("facts")
        values = None if facts is None else facts.annotation.model_validate(manifest["facts"])
        return self.resolve("result:summarise")(replace(content, request=request, facts=values))

    def write_page(self, folder: Path, *place: Path) -> Path:
        """Write page, tables and what else follows from the records again; returns the path of the
        page.
        """
        page: Path = self.open(folder, *place).write()
        return page

    def printed(self) -> dict[str, Any]:
        """The types that `--json` may print, by the name of their schema."""
        result = self.resolve(self.result)
        references = getattr(result, "printed", {self.verb.replace(" ", "-"): result})
        return {name: self.resolve(reference) for name, reference in references.items()}

    @property
    def command(self) -> str:
        """The command as one types it after `brinell`."""
        first = self.verb.partition(" ")[0]
        return self.verb if first in GROUPS else first

    @property
    def name(self) -> str:
        """The name of the Python call."""
        return self.command.replace("-", "_").replace(" ", "_")

    @property
    def call(self) -> bool:
        """Whether Python calls it by its name: `brinell.plugins` is the module that lists them."""
        return self.verb == self.command and self.name != "plugins"

    def resolve(self, reference: Reference) -> Any:
        """The object that a reference names."""
        if not isinstance(reference, str):
            return reference
        module, _, name = reference.partition(":")
        return operator.attrgetter(name)(
            import_module(module if module.startswith("brinell.") else f"{self.package}.{module}")
        )

    def fields(self) -> dict[str, Any]:
        """All settings and options of a call by name, as pydantic's fields."""
        return dict(self.request.model_fields) | (
            {} if self.options is None else dict(self.options.model_fields)
        )

    def in_memory(self) -> tuple[str, ...]:
        """The settings in whose place Python may give an object."""
        return tuple(name for name in self.memory if name in self.fields())

    def names_of(self, setting: str) -> Any:
        """The mark of a setting (`BaseRequest.names_of`); None for one without a mark."""
        return self.request.names_of(setting) or (
            self.options.names_of(setting) if self.options is not None else None
        )


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a study: what is asked for, what was given in memory, and where the
    answer goes.
    """

    study: Study
    request: Any
    """An instance of the study's request."""
    command: str
    """The command line or the Python call that repeats it."""
    progress: "Progress"
    options: Any = None
    """An instance of the study's options."""
    out: Path | None = None
    """The folder or file that was named."""
    resume: bool = False
    on: "str | Crew | None" = None
    """The place of the workers, such as ray, or the ranks of a launcher; none leaves the work to
    this process."""
    channel: "Channel | None" = None
    """The channel of a worker to its driver; None in a driver."""
    trust: Path | None = None
    """The folder from elsewhere whose models, data and code may be used."""
    datasets: "Mapping[str, Dataset]" = field(default_factory=dict)
    """Data in memory by setting."""
    objects: "Mapping[str, tuple[Model, ...]]" = field(default_factory=dict)
    """Models in memory by setting."""
    begin: Callable[[Path], None] = lambda path: None
    """Told the folder before the work begins, so that an interruption can say how to go on."""

    def __post_init__(self) -> None:
        """Refuse an output that cannot be written or that holds something else, before anything is
        computed.
        """
        if self.out is None:
            return
        from brinell.core.user_files import check_foreign
        from brinell.store.files import check_file, check_writable

        check_foreign(self.out)
        if self.study.output is Output.FILE:
            check_file(self.out)
            return
        if self.study.leaves_folder and not self.resume:
            self.study.layout.begin(self.out)
        check_writable(self.out)

    def within(self, folder: "str | Path | None") -> "Call":
        """The call, whose results go by default into the folder that it is about, under the name of
        the verb.
        """
        return (
            self
            if folder is None or self.out is not None
            else replace(self, out=Path(folder) / self.study.verb)
        )

    def pool(self) -> "Pool | Channel | None":
        """The workers of the call, or the channel of the worker that this process is; None to work
        in this process alone.
        """
        pool: Pool | Channel | None = (
            self.channel if self.on is None else self.study.resolve(SERVING)(self)
        )
        return pool

    def dataset(self, setting: str = "data", *, truth: bool = False) -> "Dataset | None":
        """The data that were given in memory; None for a spec.

        Only with `truth` they may hold masks or boxes.
        """
        dataset = self.datasets.get(setting)
        if dataset is not None and not truth:
            from brinell.engine.sources import check_labelled

            check_labelled(dataset)
        return dataset

    def models(self, setting: str = "model") -> "tuple[Model, ...]":
        """The models that were given in memory; none for specs."""
        return self.objects.get(setting, ())

    def folder(self, data: str, purpose: str = "") -> Path:
        """The output folder: the requested one, or a new one named after the data and the verb."""
        path = self.out
        if path is None:
            from brinell.store.files import check_writable

            check_writable(Path("runs"))
            path = fresh_folder(data, purpose or self.study.verb)
        self.begin(path)
        return path

    def say_samples(self, plan: Any) -> None:
        """Say which samples a plan takes, where it takes fewer than there are and nobody said how
        many or which.
        """
        if ":" not in str(self.request.samples) and plan.selection.method != "all":
            from brinell.core.errors import option

            advice = f"; {option('samples')} asks for more" if self.request.samples is None else ""
            self.progress.note(f"{plan.selection.text(len(plan.dataset))}{advice}")

    def file(self) -> Path:
        """The file that was named."""
        if self.out is None:
            from brinell.core.errors import RequestError, option

            raise RequestError(f"{option('out')} is missing: name the file to write")
        self.begin(self.out)
        return self.out


def fresh_folder(data: str, purpose: str) -> Path:
    """A folder under runs/ that is not there yet, named after the data, what was done (a norm, or a
    verb) and the time.
    """
    name = f"{data.partition(':')[0]}-{purpose.replace(':', '-').replace('/', '-')}-{datetime.now():%Y%m%d-%H%M%S}"
    ends: Iterator[str] = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    return next(path for end in ends if not (path := Path("runs") / f"{name}{end}").exists())


def command_of(request: BaseRequest, study: Study) -> str:
    """The command line that repeats a request: every setting that differs from its default."""
    if IN_MEMORY in request.model_dump_json():
        return f"brinell.{study.name}(...) in Python, with the same objects"
    arguments, positional = ["brinell", study.command], []
    for key, model_field in type(request).model_fields.items():
        value = getattr(request, key)
        if key in study.positional:
            positional += [
                str(part)
                for part in (value if isinstance(value, tuple) else (value,))
                if part is not None
            ]
        elif isinstance(value, bool) and value != model_field.default:
            arguments.append(f"--{'' if value else 'no-'}{key.replace('_', '-')}")
        elif value != model_field.default:
            for part in value if isinstance(value, tuple) else (value,):
                arguments += [f"--{key.replace('_', '-')}", str(part)]

    return shlex.join(arguments + positional)
