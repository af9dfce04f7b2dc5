"""Data, models, attacks and distances by their specs: built from them, and checked by name before anything large is imported.

A mistyped name or a missing file is refused without torch, whose import takes longer than all of these checks. Each check raises
the error that the same name would raise later, or says nothing.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brinell import plugins
from brinell.core.errors import RequestError
from brinell.core.file_content import check_graph
from brinell.core.user_files import path_hint
from brinell.datasets._arrays import BoundsError
from brinell.engine.attack_names import ALIASES, CASCADES, check_attack_name
from brinell.engine.eps_grid import parse_eps
from brinell.engine.mistakes import File, explain, find_mistakes, is_whole_module
from brinell.engine.request import IN_MEMORY, BaseRequest
from brinell.engine.spelling import expand_spec
from brinell.store.folder import MANIFEST, REQUEST
from brinell.store.run import LAYOUT

if TYPE_CHECKING:
    from brinell.core.data import Dataset

RUN = "run"
"""The setting that names the folder of a run."""
SOURCE = "source"
"""The setting that names adversarial examples."""
MOST_BYTES = 1 << 24
"""Largest size of a file of data that is opened for its check: it is opened once more later."""
MOST_FILES = 1000
"""Largest number of files of a folder that is opened for its check."""
MODEL_FILES = {"torch": "check the path before the colon", "onnx": "check the path", "sklearn": "check the path"}
"""Plugins of models whose path is a file, and what to do if there is none."""
WEIGHTS = (".safetensors", ".pt", ".pth")
"""Endings of files of weights."""


def build_source(kind: str, spec: str) -> Any:
    """The plugin that a spec names, with its settings."""
    if spec.startswith(f"{IN_MEMORY}:"):
        raise RequestError(f"{kind} {spec!r} was given in memory, from Python: repeat it there, with the same objects")
    name, path, options = plugins.parse(spec)
    return plugins.build(kind, name, options | ({"path": path} if path else {}))


def open_data(spec: str, *, truth: bool = False) -> "Dataset":
    """The data set that a spec names; `truth` says that the truth about parts of inputs is understood."""
    expanded = expand_spec("dataset", spec)
    try:
        dataset: Dataset = build_source("dataset", expanded)()
    except BoundsError as error:
        name, path, given = plugins.parse(expanded)
        if name != "npz":
            raise

        def write(options: Mapping[str, Any]) -> str:
            return f"npz:{path}?{'&'.join(f'{key}={value}' for key, value in (given | dict(options)).items())}"

        raise explain(error, write) from None
    if not truth:
        check_labelled(dataset)
    return dataset


def check_labelled(dataset: "Dataset") -> None:
    """Refuse data whose truth is about parts of inputs, where one class for each input is expected."""
    truth = dataset.info.truth
    if truth is not None:
        subject = "a mask" if truth.task == "segmentation" else "objects"
        raise RequestError(
            f"{dataset.name} holds {subject} for each picture, and here one class for each input is needed: brinell audit and "
            "brinell dense take such data"
        )


def check_sources(request: BaseRequest) -> None:
    """Refuse names of a request that mean nothing, files that do not exist, and small files of data that do not open."""
    marks = {setting: mark for setting in type(request).model_fields if (mark := request.names_of(setting)) and mark.kind}
    for setting, mark in sorted(marks.items(), key=lambda item: item[1].kind == "dataset"):  # the dearest last
        value, check = getattr(request, setting), CHECKS.get(mark.kind) or CHECKS.get(setting)
        for text in value if isinstance(value, tuple) else (value,):
            if check and isinstance(text, str) and text.partition("?")[0] not in mark.words and not text.startswith(IN_MEMORY):
                check(text)


def _check_data(spec: str) -> None:
    """Open data that take no time: a file or a folder that is small, or one that does not exist."""
    expanded = expand_spec("dataset", spec)
    name, text, _ = plugins.parse(expanded)
    if plugins.is_scratch(name):
        return
    plugins.check_name("dataset", name)
    path = Path(text).expanduser()
    if plugins.is_built_in("dataset", name) and text and (not path.exists() or _is_small(path)):
        open_data(expanded, truth=True)


def _is_small(path: Path) -> bool:
    """True for a file or a folder that is quickly read."""
    files = [path, *islice(path.rglob("*"), MOST_FILES)]
    return len(files) <= MOST_FILES and sum(file.stat().st_size for file in files if file.is_file()) <= MOST_BYTES


def _check_model(spec: str) -> None:
    """Refuse a model without a plugin, without its file, or with an option that its plugin lacks."""
    name, path, options = plugins.parse(expand_spec("model", spec))
    if plugins.is_scratch(name):
        return
    plugins.check_name("model", name)
    source = path.rpartition(":")[0] if name == "torch" else path
    if name in MODEL_FILES and source and not Path(source).expanduser().is_file():
        name_text = source if name == "torch" else repr(str(Path(source).expanduser()))
        raise RequestError(f"there is no file {name_text}: {MODEL_FILES[name]}{path_hint(source)}")
    if name == "onnx" and source:
        check_graph(Path(source).expanduser())
    weights = options.get("weights", "")
    if weights.endswith(WEIGHTS) and name in ("torch", "timm", "digits-cnn") and not Path(weights).expanduser().is_file():
        raise RequestError(f"there is no file {Path(weights).expanduser()}: check weights={path_hint(weights)}")
    if weights and is_whole_module(file := Path(weights).expanduser()):
        raise RequestError(f"{file} cannot be read: {find_mistakes(File('model', file))[0]}")


def _check_attack(spec: str) -> None:
    """Refuse an attack that is neither a cascade nor a plugin."""
    if ALIASES.get(spec, spec) not in CASCADES:
        check_attack_name(plugins.parse(spec).name)


def _check_plugin(kind: str) -> Callable[[str], None]:
    """A check that refuses a spec whose name is that of no plugin of a kind."""

    def check(spec: str) -> None:
        """Refuse such a spec."""
        if not plugins.is_scratch(name := plugins.parse(spec).name):
            plugins.check_name(kind, name)

    return check


def _check_run(text: str) -> None:
    """Refuse the folder of a run that does not exist or holds nothing of a run."""
    path = Path(text)
    if not path.exists() or _is_no_run(path):
        LAYOUT.read(path)


PARTS = ".parts"
"""The folder of the finished parts of a study that is under way."""


def _is_no_run(path: Path) -> bool:
    """True for a folder without any of the files with which a run begins."""
    return path.is_dir() and not any((path / name).exists() for name in (MANIFEST, REQUEST, PARTS))


def _check_source(text: str) -> None:
    """Refuse a folder that does not exist or holds no adversarial examples; the study itself checks names of models."""
    path = Path(text)
    if path.is_dir() and _is_no_run(path):
        raise RequestError(f"{path} is neither the folder of a run nor a benchmark set: it has no {MANIFEST}")
    if "/" in text and not path.exists():
        raise RequestError(f"there is no folder {path}: check the path of the source{path_hint(path)}")


def _check_budgets(text: str) -> None:
    """Refuse budgets that are neither numbers nor recommended ones, which the study resolves."""
    if "recommended" not in text:
        parse_eps(text)


CHECKS: dict[str, Callable[[str], None]] = {
    "dataset": _check_data,
    "model": _check_model,
    "attack": _check_attack,
    "distance": _check_plugin("distance"),
    "explainer": _check_plugin("explainer"),
    "budgets": _check_budgets,
    RUN: _check_run,
    SOURCE: _check_source,
}
"""Checks by the kind of a setting's name, or by the setting."""
