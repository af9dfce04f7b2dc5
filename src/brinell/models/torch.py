"""`torch:FILE.py:FACTORY?weights=FILE`: a PyTorch module made by a function of your own.

The function is called with the options `args=key=value,key=value` as text and returns an `nn.Module` that takes inputs in the
bounds of the data (normalisation is inside it) and gives logits. Weights are a state dict: `.safetensors`, or `.pt`/`.pth` as far
as torch reads it with `weights_only=True`; a whole pickled model is never loaded.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from brinell.core import bounded
from brinell.core.domain import Domain
from brinell.core.errors import RequestError, one_line
from brinell.core.model import Model
from brinell.core.settings import Plain
from brinell.core.user_files import import_file
from brinell.models._answers import Answered, Kind
from brinell.models._torch_model import TorchModel
from brinell.models._weights import fit_file

__all__ = ["TorchModule"]


@dataclass(frozen=True, kw_only=True)
class TorchModule:
    """A PyTorch module from a Python file, with weights from another."""

    path: str = ""
    """`FILE.py:FACTORY`: a function that returns the module."""
    weights: str = ""
    """State dict, .safetensors or .pt; without it the module keeps what the function gave it."""
    args: str = ""
    """Arguments of the function, `key=value` joined by commas, handed over as text."""
    name: Plain = ""
    """How reports call it; by default the stem of the weights' file, or the function."""

    answers: Kind | None = None
    """What the module answers: logits, probabilities, log-probabilities, sigmoids (one score per class), or for two classes one
    logit or probability; by default what the answers to clean samples look like."""

    def __call__(self, domain: Domain) -> Model:
        """Make the module, load its weights, ask it once for the number of classes.

        Raises:
            RequestError: no such file or function, a function that fails or gives no module, weights that are damaged, pickled or
                do not fit, a module that cannot take inputs of the domain.
        """
        source, _, factory = self.path.rpartition(":")
        if not source or not factory:
            raise RequestError(f"{'torch:' + self.path!r} names no function: write torch:FILE.py:FACTORY?weights=FILE")
        file = Path(source).expanduser()
        module = _make(file, factory, _arguments(self.args))
        name = self.name or factory
        if self.weights:
            fit_file(module, self.weights)
            name = self.name or Path(self.weights).stem
        code = f"{hashlib.blake2b(bounded.read(file, bounded.MOST_TEXT)).hexdigest()} {factory} {self.args}"
        model = TorchModel(module.eval(), domain, name=name, code=code)
        return Answered(model, self.answers) if self.answers else model


def _arguments(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    if bad := [key for key, equals, _ in pairs if not equals or not key.isidentifier()]:
        raise RequestError(f"args={text}: {bad[0]!r} is no key=value; write args=key=value,key=value")
    return {key: value for key, _, value in pairs}


def _make(file: Path, factory: str, arguments: Mapping[str, str]) -> nn.Module:
    scope = import_file(file)
    function = getattr(scope, factory, None)
    if not callable(function):
        own = sorted(name for name, value in vars(scope).items() if getattr(value, "__module__", "") == scope.__name__)
        raise RequestError(f"{file} has no function {factory!r}; it has {', '.join(own) or 'none'}")
    try:
        module = function(**arguments)
    except (Exception, SystemExit) as error:
        raise RequestError(f"{file}:{factory} failed with {type(error).__name__}: {one_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise RequestError(f"{file}:{factory} returned a {type(module).__name__}, not an nn.Module")
    return module
