"""Loads weights from a file into a module, key for key. Nothing but tensors is unpickled."""

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from brinell.core import bounded
from brinell.core.errors import RequestError

NESTED = ("state_dict", "model_state_dict", "model", "net")
"""Keys that hold the state dict in checkpoints."""
OTHER_FILES = {".onnx": "; an ONNX file is a model by itself: write {path} in place of the model"} | dict.fromkeys(
    (".h5", ".keras", ".pb", ".tflite"), "; this is a file of TensorFlow: make it an ONNX file by tf2onnx, and name FILE.onnx"
)
"""What to do about files of other libraries in place of weights."""
PREFIXES = ("module.", "_orig_mod.", "model.")
"""Prefixes that wrappers of a module (data parallel, compile, normalisation) add to each name."""


def read_weights(file: Path) -> dict[str, Tensor]:
    """The state dict in a file, without the dicts and prefixes that checkpoints put around it."""
    if not file.is_file():
        raise RequestError(f"there is no file {file}: check weights=")
    if file.suffix == ".safetensors":
        with bounded.decoding(file, file.stat().st_size, "no safetensors file"):
            return load_file(file)
    if file.suffix not in (".pt", ".pth", ".th", ".bin", ".ckpt"):
        program = f"; {program_remedy(file)}" if file.suffix == ".pt2" else OTHER_FILES.get(file.suffix, "").format(path=file)
        raise RequestError(f"{file}: weights come as .safetensors, or as .pt or .pth that holds a state dict{program}")
    return state_dict(read_torch(file), file)


def read_torch(file: Path) -> Any:
    """The content of a file that torch can read with `weights_only=True`."""
    with bounded.decoding(file, file.stat().st_size, "no file of torch"):
        _check_packing(file)
        with bounded.open_regular(file) as stream:
            start = stream.read(2)
        if start != b"PK" and start[:1] != b"\x80":
            raise RequestError(f"{file} is no file of torch, whatever its ending: save model.state_dict() in it")
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:
            if "eights_only" in str(error) or "Unsupported" in str(error):
                raise RequestError(
                    f"{file} is a pickle of more than tensors, which is never loaded: save model.state_dict() as .safetensors"
                ) from None
            raise


def _check_packing(file: Path) -> None:
    """Refuse an archive with compressed members; torch itself never compresses them."""
    with bounded.open_regular(file) as stream:
        if not zipfile.is_zipfile(stream):
            return
        with zipfile.ZipFile(stream) as archive:
            bounded.check_unpacked_size(sum(member.file_size for member in archive.infolist()), file.stat().st_size, file)
            if any(name.endswith(("/constants.pkl", "/archive_format")) for name in archive.namelist()):
                raise RequestError(f"{file} is a program with its weights, which is not opened by itself: {program_remedy(file)}")


def program_remedy(file: Path) -> str:
    """What to write to audit a TorchScript module or an exported program from a file: code of the user's own opens it."""
    opening = "torch.export.load" if file.suffix == ".pt2" else "torch.jit.load"
    return f"write def net(): return {opening}('{file.resolve()}') in FILE.py, import torch above it, and name torch:FILE.py:net"


def state_dict(content: Any, file: Path) -> dict[str, Tensor]:
    """Names and tensors of the state dict in the content of a checkpoint."""
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping) or not content or not all(isinstance(value, Tensor) for value in content.values()):
        raise RequestError(f"{file} holds no state dict (names to tensors): save model.state_dict()")
    state = {str(key): value for key, value in content.items()}
    for prefix in PREFIXES:
        if all(key.startswith(prefix) for key in state):
            state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state


Cure = Callable[[int], str]
"""What to do about weights whose last layer has another number of classes, from that number."""
OTHER_NETWORK = "take the weights of this network"


def load_weights(module: nn.Module, state: Mapping[str, Tensor], source: str, cure: Cure | None = None) -> None:
    """Load a state dict, key for key; values are cast to the type of the parameters.

    A module on the meta device takes the tensors themselves, so no random weights are created first; a lazy layer also takes
    their shapes.

    Args:
        module: the network.
        state: its weights by name.
        source: where they come from, for messages.
        cure: what to do about another number of classes; None where nothing can be done.
    """
    parameters = module.state_dict()
    # Batch norm's counter of batches plays no part in an answer, and old checkpoints lack it.
    missing = [key for key in parameters if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in parameters]
    mismatched = [
        key for key in parameters if key in state and not is_lazy(parameters[key]) and state[key].shape != parameters[key].shape
    ]
    shapes = [f"{key} {tuple(state[key].shape)} for {tuple(parameters[key].shape)}" for key in mismatched]
    problems_by_kind = [("missing", missing), ("unexpected", unexpected), ("of another shape", shapes)]
    if problems := [f"{len(keys)} {word} ({_first_names(keys)})" for word, keys in problems_by_kind if keys]:
        remedy = OTHER_NETWORK
        if missing or unexpected:
            remedy = _cure_of_head(missing, unexpected, source) or remedy
        elif cure is not None and (classes := _classes_of_head(parameters, state, mismatched)):
            remedy = f"these weights are for {classes} classes: {cure(classes)}"
        raise RequestError(f"{source} does not fit {type(module).__name__}: names {'; '.join(problems)}: {remedy}")
    abstract = any(tensor.is_meta for tensor in parameters.values())
    if abstract:
        state = {key: state.get(key, torch.zeros(value.shape)).to(value.dtype) for key, value in parameters.items()}
    module.load_state_dict(dict(state), strict=False, assign=abstract)


def _classes_of_head(parameters: Mapping[str, Tensor], state: Mapping[str, Tensor], mismatched: list[str]) -> int | None:
    """Number of classes of the weights, if all tensors of another shape differ in that alone; otherwise None."""
    pairs = {(tuple(parameters[key].shape[:1]), tuple(state[key].shape[:1])) for key in mismatched}
    same_rest = all(parameters[key].shape[1:] == state[key].shape[1:] for key in mismatched)
    first, second = next(iter(pairs)) if len(pairs) == 1 else ((), ())
    return int(second[0]) if same_rest and first and second else None


def _cure_of_head(missing: list[str], unexpected: list[str], source: str) -> str | None:
    """What to do about weights whose last module has other parts, such as a dropout before the layer; None for other cases."""
    heads = {_parent(key, 1) for key in missing} | {_parent(key, 2) for key in unexpected}
    if not missing or len({head.partition(".")[0] for head in heads}) > 1:
        return None
    head = missing[0].rpartition(".")[0]
    shape_hint = f"network.{head} = ..." if head else "..."
    return (
        f"its last part, {head or 'the network'}, is another one than the library's; build it as for training in a file of "
        f"yours, def net(): ...; {shape_hint}; return network, and name that: 'torch:FILE.py:net?weights={source}'"
    )


def _parent(name: str, levels: int) -> str:
    """A name without its last parts, as far as it has more than one."""
    parts = name.split(".")
    return ".".join(parts[: max(1, len(parts) - levels)])


def completed_spec(kind: str, settings: Any, **changes: object) -> str:
    """The spec of a model as a terminal and Python take it, with its settings other than the defaults and these changes."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings) if field.name != "path"}
    defaults = {field.name: field.default for field in fields(settings)}
    options = {name: value for name, value in values.items() if value != defaults[name]} | changes
    query = "&".join(f"{name}={_spelled(value)}" for name, value in options.items())
    return f"'{kind}{':' + settings.path if settings.path else ''}{'?' + query if query else ''}'"


def _spelled(value: object) -> str:
    """A setting as a spec has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


def load_weights_file(module: nn.Module, path: str, cure: Cure | None = None) -> None:
    """Load the weights of a file; raises as `read_weights` and `load_weights` do."""
    file = Path(path).expanduser()
    load_weights(module, read_weights(file), str(file), cure)


def _first_names(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")
