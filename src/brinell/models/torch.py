"""`torch:FILE.py:FACTORY?weights=FILE`: a PyTorch module created by your function.

The function is called with the options `args=key=value,key=value` as text and returns an `nn.Module`. The module takes inputs
in the bounds of the data (normalisation inside) and returns logits. The file imports modules of its folder, as `python FILE.py`
does; the function may return a TorchScript module, an exported program or a compiled one as well.

Weights are a state dict: `.safetensors`, or `.pt`/`.pth` if torch can read it with `weights_only=True`; a pickled model is
never loaded.
A `classes.json` in the folder of the weights, or without weights in that of the Python file, names the classes in the order of
the logits.
"""

import inspect
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Model
from brinell.core.settings import Plain
from brinell.core.siblings import kept_path
from brinell.core.torch_settings import kept_settings
from brinell.core.user_files import failure_text, hash_code, import_file, module_name
from brinell.models._answers import Kind, LogitModel
from brinell.models._class_order import names_beside
from brinell.models._torch_model import TorchModel
from brinell.models._weights import completed_spec, load_weights_file, program_remedy

__all__ = ["TorchModule"]

CLASSES = re.compile("class|label|category|categories|outputs?$|out_(features|dim)", re.IGNORECASE)
"""Names of the argument of a factory that says how many classes there are."""


@dataclass(frozen=True, kw_only=True)
class TorchModule:
    """A PyTorch module from a Python file, with weights from another."""

    path: str = ""
    """`FILE.py:FACTORY`: a function that returns the module."""
    weights: str = ""
    """State dict, .safetensors or .pt; without it the module keeps the weights that the function set."""
    args: str = ""
    """Arguments of the function, `key=value` joined by commas, passed as text."""
    name: Plain = ""
    """Name in reports; by default the stem of the weights' file, or the function."""

    answers: Kind | None = None
    """Kind of the module's answers: logits, probabilities, log-probabilities, sigmoids (one score per class), or for two
    classes one logit or probability; by default inferred from the answers to clean samples.
    """

    output: Plain = ""
    """Part of the answer that holds the logits, for a module that answers several: a name or a place, such as logits, 0 or
    heads.1; by default the only part that fits.
    """

    def __call__(self, domain: Domain) -> Model:
        """The model for data whose number of classes is not known."""
        return self.open_for(domain, None)

    def open_for(self, domain: Domain, classes: int | None) -> Model:
        """Create the module, load its weights, and call it once for the number of classes.

        Raises:
            RequestError: the file or function does not exist, the function fails or returns no module, the weights are damaged,
                pickled or do not fit, or the module cannot take inputs of the domain.
        """
        source, _, factory = self.path.rpartition(":")
        if (program := Path(self.path).expanduser()).suffix in (".pt", ".pth", ".pt2"):
            raise RequestError(f"{program} is no Python file: {program_remedy(program)}")
        if not source or not factory:
            raise RequestError(f"{'torch:' + self.path!r} names no function: write torch:FILE.py:FACTORY?weights=FILE")
        file = Path(source).expanduser()
        with kept_settings() as changes:
            module = _make(file, factory, _arguments(self.args))
        name = self.name or factory
        if self.weights:
            load_weights_file(module, self.weights, partial(self._cure, file, factory))
            name = self.name or Path(self.weights).stem
        code = f"{hash_code(file)} {factory} {self.args}"
        names = names_beside(self.weights or file)
        model = TorchModel(
            module,
            domain,
            name=name,
            code=code,
            changes=changes,
            class_names=names,
            output=self.output or None,
            data_classes=classes,
        )
        return LogitModel(model, self.answers) if self.answers else model

    def _cure(self, file: Path, factory: str, classes: int) -> str:
        """What to do about weights for this number of classes: the function's own argument for it, if it has one."""
        function = getattr(sys.modules[module_name(file)], factory)
        with suppress(ValueError, TypeError):
            for argument in inspect.signature(function).parameters:
                if CLASSES.search(argument):
                    arguments = _arguments(self.args) | {argument: str(classes)}
                    args = ",".join(f"{key}={value}" for key, value in arguments.items())
                    return f"write {completed_spec('torch', self, args=args)}"
        return f"let {factory} in {file} end in a layer of {classes} outputs"


def _arguments(text: str) -> dict[str, str]:
    """Arguments of `args=key=value,...`."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    if bad := [key for key, equals, _ in pairs if not equals or not key.isidentifier()]:
        raise RequestError(f"args={text}: {bad[0]!r} is no key=value; write args=key=value,key=value")
    return {key: value for key, _, value in pairs}


def _make(file: Path, factory: str, arguments: Mapping[str, str]) -> nn.Module:
    """The module that a factory makes."""
    scope = import_file(file)
    function = getattr(scope, factory, None)
    if not callable(function):
        functions = sorted(name for name, value in vars(scope).items() if getattr(value, "__module__", "") == scope.__name__)
        raise RequestError(f"{file} has no function {factory!r}; it has {', '.join(functions) or 'none'}")
    try:
        with kept_path():
            module = function(**arguments)
    except (Exception, SystemExit) as error:
        raise RequestError(failure_text(f"{file}:{factory} failed", error, file)) from error
    if isinstance(module, torch.export.ExportedProgram):
        module = module.module()
    if not isinstance(module, nn.Module):
        raise RequestError(f"{file}:{factory} returned a {type(module).__name__}, not an nn.Module")
    return module
