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
from types import ModuleType
from typing import Any

import torch
from torch import nn

from brinell.core.detection import BoxForm
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Model
from brinell.core.suggestions import suggestion
from brinell.core.torch_settings import kept_defaults
from brinell.core.user_files import bound_names, failure_text, folder_on_path, hash_code, import_file, module_name
from brinell.models._answers import Kind, LogitModel
from brinell.models._class_order import names_beside
from brinell.models._detections import Decoded, open_decoder
from brinell.models._torch_model import TorchModel
from brinell.models._weights import completed_spec, load_weights_file, program_remedy

__all__ = ["TorchModule"]

CLASSES = re.compile("class|label|category|categories|outputs?$|out_(features|dim)", re.IGNORECASE)
"""Names of the argument of a factory that says how many classes there are."""


INPUT_NAMES = frozenset(("x", "xs", "batch", "data", "images", "image", "inputs", "input", "img", "signal"))
"""Names of an argument that takes inputs."""


@dataclass(frozen=True, kw_only=True)
class TorchModule:
    """A PyTorch module from a Python file, with weights from another."""

    path: str = ""
    """`FILE.py:FACTORY`: a function that returns the module."""
    weights: str = ""
    """State dict, .safetensors or .pt; without it the module keeps the weights that the function set."""
    args: str = ""
    """Arguments of the function, `key=value` joined by commas, passed as text."""
    name: str = ""
    """Name in reports; by default the stem of the weights' file, or the function."""

    answers: Kind | None = None
    """Kind of the module's answers: logits, probabilities, log-probabilities, sigmoids (one score per class), or for two
    classes one logit or probability; by default inferred from the answers to clean samples.
    """

    output: str = ""
    """Part of the answer that holds the logits, for a module that answers several: a name or a place, such as logits, 0 or
    heads.1; by default the only part that fits.
    """
    decode: str = ""
    """`FILE.py:FUNCTION` for a detector: turns the module's raw output into (n, candidates, 4 + classes), corners in pixels and
    then a score from 0 to 1 for each class, before suppression.
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
        with kept_defaults():
            module = _make(file, factory, _arguments(self.args))
        name = self.name or factory
        if self.weights:
            load_weights_file(module, self.weights, partial(self._cure, file, factory))
            name = self.name or Path(self.weights).stem
        code = f"{hash_code(file)} {factory} {self.args}"
        if self.decode:
            decoder, decoder_code = open_decoder(self.decode)
            module, code = Decoded(module, decoder), f"{code} {decoder_code}"
        names = names_beside(self.weights or file)
        model = TorchModel(
            module,
            domain,
            name=name,
            code=code,
            class_names=names,
            output=self.output or None,
            data_classes=classes,
        )
        if self.decode and not isinstance(model.info.output, BoxForm):
            raise RequestError(f"decode={self.decode} gives no boxes: return (n, candidates, 4 + classes)")
        return LogitModel(model, self.answers) if self.answers else model

    def _cure(self, file: Path, factory: str, classes: int) -> str:
        """Remedy for weights with another number of classes: set the function's argument for it, or change its last layer."""
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
    scope = import_file(file)
    function = getattr(scope, factory, None)
    _check_factory(function, file, factory, scope, arguments)
    try:
        with folder_on_path(file):
            module = function(**arguments)  # type: ignore[misc]
    except (Exception, SystemExit) as error:
        raise RequestError(failure_text(f"{file}:{factory} failed", error, file)) from error
    if isinstance(module, torch.export.ExportedProgram):
        module = module.module()
    if not isinstance(module, nn.Module):
        raise RequestError(f"{file}:{factory} returned {_describe(module)}, and no nn.Module: {_remedy(module, factory)}")
    return module


def _check_factory(function: Any, file: Path, factory: str, scope: ModuleType, arguments: Mapping[str, str]) -> None:
    """Refuse a factory that does not exist, is no function, or does not take these arguments.

    Raises:
        RequestError: the file lacks it, it is something else, or it needs further arguments.
    """
    function_names = sorted(
        name
        for name, value in vars(scope).items()
        if callable(value)
        and not isinstance(value, nn.Module)
        and (name in bound_names(file) or getattr(value, "__module__", "") == scope.__name__)
    )
    if function is None:
        names = f"it has {', '.join(function_names) or 'none'}"
        raise RequestError(f"{file} has no function {factory!r}{suggestion(factory, function_names, names)}")
    if isinstance(function, nn.Module):
        raise RequestError(
            f"{file}:{factory} is a module, and the name of a function that returns it is expected: write def net(): return "
            f"{factory}, and name {file}:net"
        )
    if not callable(function):
        functions = (
            f"it has {', '.join(function_names)}"
            if function_names
            else f"write def net(): return ... in {file}, and name {file}:net"
        )
        raise RequestError(f"{file}:{factory} is {_describe(function)}, and no function that returns the network: {functions}")
    try:
        inspect.signature(function).bind(**arguments)
    except ValueError:  # no signature to compare with
        return
    except TypeError as error:
        raise RequestError(_argument_problem(function, file, factory, arguments, error)) from None


def _argument_problem(function: Any, file: Path, factory: str, arguments: Mapping[str, str], error: TypeError) -> str:
    """The message about a function or class whose arguments are not those that are given."""
    parameters = inspect.signature(function).parameters
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    missing = [name for name in required if name not in arguments]
    kind = "class" if isinstance(function, type) else "function"
    if not missing:
        names = ", ".join(parameters) or "none"
        return f"{file}:{factory} does not take these args ({error}): its arguments are {names}"
    problem = f"{file}:{factory} is a {kind} that needs {', '.join(missing)}"
    if kind == "function" and required == missing and missing[0] in INPUT_NAMES:
        return (
            f"{problem}, as a network does, and a function without arguments that returns an nn.Module is expected: put its code "
            f"in the forward of a module, write def net(): return Net(), and name {file}:net; or pass it to brinell.audit"
        )
    pairs = ",".join(f"{name}={arguments.get(name, 'VALUE')}" for name in (*arguments, *missing))
    return (
        f"{problem}: write '{file}:{factory}?args={pairs}', which passes texts, or def net(): return {factory}(...) in {file}, "
        f"and name {file}:net"
    )


def _describe(value: Any) -> str:
    """Description of an object for a message."""
    if value is None:
        return "None"
    if isinstance(value, ModuleType):
        return f"an imported module ({value.__name__})"
    if isinstance(value, Mapping) and value and all(isinstance(part, torch.Tensor) for part in value.values()):
        return "a state dict"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _remedy(value: Any, factory: str) -> str:
    """What to do about a factory that returns this."""
    if value is None:
        return f"end {factory} in return model"
    if isinstance(value, Mapping):
        return f"let {factory} build the network, call its load_state_dict, and return the network"
    if isinstance(value, tuple | list) and any(isinstance(part, nn.Module) for part in value):
        return f"let {factory} return the network alone"
    if isinstance(value, type) and issubclass(value, nn.Module):
        return f"let {factory} return {value.__name__}(), an instance"
    if callable(value):
        return f"let {factory} return a module whose forward calls it, or hand it to brinell.audit in Python"
    return f"let {factory} return the network"
