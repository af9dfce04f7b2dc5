"""Loads weights from a file into a module, key for key. Nothing but tensors is unpickled.

A checkpoint may hold several state dicts, and their names may begin with a prefix: those are taken
whose names are the module's behind any prefix. Averaged weights (EMA) come after the raw ones.
"""

import zipfile
from collections.abc import Iterator, Mapping
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
PREFIXES = ("module.", "_orig_mod.", "model.")
"""Prefixes that wrappers of a module (data parallel, compile, normalisation) add to each name."""
AVERAGED = ("ema", "averaged", "shadow", "swa", "teacher")
"""Parts of the names of averaged weights."""
COUNTER = "num_batches_tracked"
"""Batch norm's counter of batches: it plays no part in an answer, and old checkpoints lack it."""


def read_weights(file: Path) -> dict[str, Tensor]:
    """The state dict in a file, without the dicts and prefixes that checkpoints put around it."""
    return state_dict(read_checkpoint(file), file)


def read_checkpoint(file: Path) -> Any:
    """The content of a file of weights."""
    if not file.is_file():
        raise RequestError(f"there is no file {file}: check weights=")
    if file.suffix == ".safetensors":
        with bounded.decoding(file, file.stat().st_size, "no safetensors file"):
            return load_file(file)
    if not file.name.endswith((".pt", ".pth", ".pth.tar", ".th", ".bin", ".ckpt")):
        raise RequestError(
            f"{file}: weights come as .safetensors, or as .pt or .pth that holds a state dict"
        )
    return read_torch(file)


def read_torch(file: Path) -> Any:
    """The content of a file that torch can read with `weights_only=True`."""
    with bounded.decoding(file, file.stat().st_size, "no file of torch"):
        _check_packing(file)
        with bounded.open_regular(file) as stream:
            start = stream.read(2)
        # A zip archive, or a pickle as older versions wrote it.
        if start != b"PK" and start[:1] != b"\x80":
            raise RequestError(
                f"{file} is no file of torch, whatever its ending: save model.state_dict() in it"
            )

        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:
            if "eights_only" in str(error) or "Unsupported" in str(error):
                raise RequestError(
                    f"{file} is a pickle of more than tensors, which is never "
                    "loaded: save model.state_dict() as .safetensors"
                ) from None
            raise


def _check_packing(file: Path) -> None:
    """Refuse an archive with compressed members; torch itself never compresses them."""
    with bounded.open_regular(file) as stream:
        if not zipfile.is_zipfile(stream):
            return
        with zipfile.ZipFile(stream) as archive:
            bounded.check_unpacked_size(
                sum(member.file_size for member in archive.infolist()), file.stat().st_size, file
            )

            # Such an archive holds code, which reads its own weights.
            if any(
                name.endswith(("/constants.pkl", "/archive_format")) for name in archive.namelist()
            ):
                raise RequestError(
                    f"{file} is a program with its weights: let a function of "
                    f"FILE.py return torch.jit.load({str(file)!r})"
                )


def state_dict(content: Any, file: Path) -> dict[str, Tensor]:
    """Names and tensors of the state dict in the content of a checkpoint."""
    for key in NESTED:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if (
        not isinstance(content, Mapping)
        or not content
        or not all(isinstance(value, Tensor) for value in content.values())
    ):
        raise RequestError(
            f"{file} holds no state dict (names to tensors): save model.state_dict()"
        )

    state = {str(key): value for key, value in content.items()}
    # Containers put a prefix before every name, and containers of these another one.
    while prefix := next((p for p in PREFIXES if all(key.startswith(p) for key in state)), ""):
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def fitting_states(content: Any, module: nn.Module) -> dict[str, dict[str, Tensor]]:
    """The state dicts in the content of a checkpoint whose names are those of a module behind any
    prefix, by dict and prefix: those of raw weights first.
    """
    # Batch norm's counter of batches plays no part in an answer, and old checkpoints lack it.
    needed = {key for key in module.state_dict() if not key.endswith(COUNTER)}
    states = {
        ".".join(filter(None, (*path, prefix.rstrip(".")))): state
        for path, tensors in _state_dicts(content)
        for prefix, state in _parts_of(tensors, needed).items()
    }

    def rank(name: str) -> tuple[bool, bool]:
        # Averaged weights are the better ones, and those of the top level the usual ones.
        is_averaged = any(part in name.lower() for part in AVERAGED)
        return is_averaged, name.partition(".")[0] not in ("", *NESTED)

    return {name: states[name] for name in sorted(states, key=rank)}


def _parts_of(tensors: Mapping[str, Tensor], needed: set[str]) -> dict[str, dict[str, Tensor]]:
    """The parts of a state dict with the needed names behind a prefix, by prefix; none if most of
    it is something else.
    """
    # The longest name shows the prefixes: it is the least likely to end another name by chance.
    anchor = max(needed, key=len, default="")
    prefixes = [key.removesuffix(anchor) for key in tensors if f".{key}".endswith(f".{anchor}")]
    parts: dict[str, dict[str, Tensor]] = {}
    for prefix in prefixes:
        # Names behind a longer prefix belong to another network.
        longer = tuple(p for p in prefixes if p.startswith(prefix) and p != prefix)
        names = [key for key in tensors if key.startswith(prefix)]
        names = [key for key in names if not (longer and key.startswith(longer))]
        part = {key.removeprefix(prefix): tensors[key] for key in names}
        parts |= {prefix: part} if needed <= part.keys() else {}
    return parts if 2 * sum(map(len, parts.values())) >= len(tensors) and needed else {}


def _state_dicts(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The mappings of names to tensors in a checkpoint, each with its keys."""
    if not isinstance(content, Mapping) or not content:
        return
    if all(isinstance(value, Tensor) for value in content.values()):
        yield path, {str(key): value for key, value in content.items()}
        return
    for key, value in content.items():
        yield from _state_dicts(value, (*path, str(key)))


def load_weights(
    module: nn.Module, state: Mapping[str, Tensor], source: str, remedy: str = ""
) -> None:
    """Load a state dict, key for key; values are cast to the type of the parameters.

    A module on the meta device takes the tensors themselves, so no random weights are created
    first; a lazy layer also takes their shapes.
    """
    parameters = module.state_dict()
    missing, unexpected, mismatched = _misfits(parameters, state)
    shapes = [
        f"{key} {tuple(state[key].shape)} for {tuple(parameters[key].shape)}" for key in mismatched
    ]
    problems_by_kind = [
        ("missing", missing),
        ("unexpected", unexpected),
        ("of another shape", shapes),
    ]
    if problems := [
        f"{len(keys)} {word} ({', '.join(keys[:3])}{', ...' * (len(keys) > 3)})"
        for word, keys in problems_by_kind
        if keys
    ]:
        advice = "take the weights of this network"
        if (
            remedy
            and not missing
            and not unexpected
            and (classes := _classes_of_head(parameters, state, mismatched))
        ):
            advice = f"these weights are for {classes} classes: {remedy.format(classes=classes)}"
        raise RequestError(
            f"{source} does not fit {type(module).__name__}: names {'; '.join(problems)}: {advice}"
        )

    if abstract := any(tensor.is_meta for tensor in parameters.values()):
        # What old checkpoints lack is the counter of batch norm.
        state = {
            key: state.get(key, torch.zeros(value.shape)).to(value.dtype)
            for key, value in parameters.items()
        }
    module.load_state_dict(dict(state), strict=False, assign=abstract)


def _misfits(
    parameters: Mapping[str, Tensor], state: Mapping[str, Tensor]
) -> tuple[list[str], list[str], list[str]]:
    """Keys that a state dict lacks, that it has too many, and whose shapes differ."""
    missing = [key for key in parameters if key not in state and not key.endswith(COUNTER)]
    unexpected = [key for key in state if key not in parameters]
    mismatched = [
        key
        for key in parameters
        if key in state
        and not is_lazy(parameters[key])
        and state[key].shape != parameters[key].shape
    ]
    return missing, unexpected, mismatched


def _classes_of_head(
    parameters: Mapping[str, Tensor], state: Mapping[str, Tensor], mismatched: list[str]
) -> int | None:
    """Number of classes of the weights, if mismatched tensors differ in that alone; else None."""
    pairs = {(tuple(parameters[key].shape[:1]), tuple(state[key].shape[:1])) for key in mismatched}
    same_rest = all(parameters[key].shape[1:] == state[key].shape[1:] for key in mismatched)
    first, second = next(iter(pairs)) if len(pairs) == 1 else ((), ())
    return int(second[0]) if same_rest and first and second else None


HEAD = "add &classes={classes} to the model"
"""The remedy of a library's network for weights with a new head."""


def load_weights_file(
    module: nn.Module, path: str, remedy: str = "", name: str = ""
) -> tuple[str, ...]:
    """Load the weights of a file: the state dict of a name in it, or else the first that fits;
    returns the names of others.

    Raises as `read_weights` and `load_weights` do.
    """
    file = Path(path).expanduser()
    content = read_checkpoint(file)
    target, states = module, fitting_states(content, module)
    # A network behind a preparation without parameters may have its weights for itself.
    for part in module.children():
        if not states and len(list(part.parameters())) == len(list(module.parameters())):
            target, states = part, fitting_states(content, part)
    if name and name not in states:
        listing = ", ".join(filter(None, states)) or "none"
        raise RequestError(f"{file} has no state dict {name!r} that fits; it has {listing}")

    choice = name or next(iter(states), "")
    state = states[choice] if states else state_dict(content, file)
    load_weights(target, state, str(file), remedy)
    return tuple(key for key in states if not _are_equal(states[key], state))


def _are_equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    """True if two state dicts hold the same tensors."""
    return all(torch.equal(tensor, second[key]) for key, tensor in first.items() if key in second)
