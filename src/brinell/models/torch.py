"""`torch:FILE.py:FACTORY?weights=FILE`: a PyTorch module created by your function.

The function is called with the options `args=key=value,key=value` as text and returns an
`nn.Module`. The module takes inputs in the bounds of the data (normalisation inside) and returns
logits. The file imports modules of its folder, as `python FILE.py` does; the function may return a
TorchScript module, an exported program or a compiled one as well.

Weights are a state dict: `.safetensors`, or `.pt`/`.pth` if torch can read it with
`weights_only=True`; a pickled model is never loaded. A `classes.json` in the folder of the weights,
or without weights in that of the Python file, names the classes in the order of the logits.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brinell.core.detection import BoxForm
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Model
from brinell.core.suggestions import nearest_name, suggestion
from brinell.core.torch_settings import kept_defaults
from brinell.core.user_files import failure_text, folder_on_path, hash_code, import_file
from brinell.models._answers import Kind, LogitModel
from brinell.models._class_order import names_beside
from brinell.models._detections import Decoded, open_decoder
from brinell.models._torch_model import TorchModel
from brinell.models._weights import load_weights_file


@dataclass(frozen=True, kw_only=True)
class TorchModule:
    """A PyTorch module from a Python file, with weights from another."""

    path: str = ""
    """`FILE.py:FACTORY`: a function that returns the module."""
    weights: str = ""
    """State dict, .safetensors or .pt; without it the module keeps the weights that the function
    set."""
    state: str = ""
    """The state dict to take from a file that holds several, such as model_ema; by default that of
    the raw weights."""
    args: str = ""
    """Arguments of the function, `key=value` joined by commas, passed as text."""
    name: str = ""
    """Name in reports; by default the stem of the weights' file, or the function."""

    answers: Kind | None = None
    """Kind of the module's answers: logits, probabilities, log-probabilities, sigmoids (one score
    per class), or for two classes one logit or probability; by default inferred from the answers to
    clean samples.
    """

    output: str = ""
    """Part of the answer that holds the logits, for a module that answers several: a name or a
    place, such as logits, 0 or heads.1; by default the only part that fits.
    """
    decode: str = ""
    """`FILE.py:FUNCTION` for a detector: turns the module's raw output into (n, candidates, 4 +
    classes), corners in pixels and then a score from 0 to 1 for each class, before suppression.
    """

    def __call__(self, domain: Domain) -> Model:
        """The model for data whose number of classes is not known."""
        return self.open_for(domain, classes=None)

    def open_for(self, domain: Domain, classes: int | None) -> Model:
        """Create the module, load its weights, and call it once for the number of classes."""
        source, _, factory = self.path.rpartition(":")
        if not source or not factory:
            raise RequestError(
                f"{'torch:' + self.path!r} names no function: write "
                "torch:FILE.py:FACTORY?weights=FILE"
            )
        file = Path(source).expanduser()
        arguments = self._arguments()
        with kept_defaults():
            module = _make(file, factory, arguments)
        name = self.name or factory
        states: tuple[str, ...] = ()
        if self.weights:
            remedy = f"let {factory} in {file} end in as many outputs"
            states = load_weights_file(module, self.weights, remedy, self.state)
            name = self.name or Path(self.weights).stem

        # The digest of a model covers its code, and that of the function behind it.
        code = f"{hash_code(file)} {factory} {self.args}"
        if self.decode:
            decoder, decoder_code = open_decoder(self.decode)
            module = Decoded(module, decoder)
            code = f"{code} {decoder_code}"
        model = TorchModel(
            module,
            domain,
            name=name,
            code=code,
            class_names=names_beside(self.weights or file),
            output=self.output or None,
            data_classes=classes,
            alternatives=tuple(f"state={state}" for state in states),
        )
        if self.decode and not isinstance(model.info.output, BoxForm):
            raise RequestError(
                f"decode={self.decode} gives no boxes: return (n, candidates, 4 + classes)"
            )
        return LogitModel(model, self.answers) if self.answers else model

    def _arguments(self) -> dict[str, str]:
        """The arguments of the function, as `args` names them."""
        pairs = [part.partition("=") for part in self.args.split(",") if part]
        if bad := [key for key, equals, _ in pairs if not equals or not key.isidentifier()]:
            raise RequestError(
                f"args={self.args}: {bad[0]!r} is no key=value; write args=key=value,key=value"
            )
        return {key: value for key, _, value in pairs}


def _make(file: Path, factory: str, arguments: Mapping[str, str]) -> nn.Module:
    """The module that the function of a file returns."""
    scope = import_file(file)
    entry = getattr(scope, factory, None)
    if not callable(entry):
        names = sorted(
            name
            for name, value in vars(scope).items()
            if getattr(value, "__module__", "") == scope.__name__
        )
        hint = suggestion(factory, names, f"it has {', '.join(names) or 'none'}")
        nearest = nearest_name(factory, names)
        raise RequestError(
            f"{file} has no function {factory!r}{hint}",
            instead=(f":{factory}", f":{nearest}") if nearest else None,
        )

    try:
        with folder_on_path(file):
            module = entry if isinstance(entry, nn.Module) else entry(**arguments)
    except (Exception, SystemExit) as error:
        # A factory that needs arguments is the usual reason: the remedy names them.
        pairs = ",".join(f"{name}=VALUE" for name in _missing_arguments(entry, arguments))
        raise RequestError(
            failure_text(f"{file}:{factory} failed", error, file),
            remedy=f"write {file}:{factory}?args={pairs}, or give it a default" if pairs else "",
        ) from error
    module = module.module() if isinstance(module, torch.export.ExportedProgram) else module
    if not isinstance(module, nn.Module):
        name = module.__name__ if isinstance(module, type) else ""
        raise RequestError(
            f"{file}:{factory} returned {type(module).__name__}, and no nn.Module",
            remedy=f"let it return {name}(), or write {file}:{name}"
            if name
            else "let it return the network",
        )
    return module


def _missing_arguments(function: Any, arguments: Mapping[str, str]) -> list[str]:
    """Names of the arguments that a function needs and that nobody gives."""
    try:
        parameters = inspect.signature(function).parameters.values()
    # A class of C has no signature, so that nothing is known of its arguments.
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in kinds
        and parameter.name not in arguments
    ]
