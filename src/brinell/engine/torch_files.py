"""Files of torch by their first bytes and by the names in their pickle, of which nothing is loaded."""

import pickletools
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from brinell.core import bounded
from brinell.core.file_content import PICKLE, PROGRAM, TENSORS, content_of

WEIGHTS = (
    "it holds weights, which do not say which network they belong to: write model.py:FACTORY?weights={path}, where FACTORY is a "
    "function in model.py that returns the network"
)
SCRIPTED = (
    "it is a TorchScript program, which is opened by code of yours: let def net() in model.py return torch.jit.load('{path}'), "
    "and write model.py:net"
)
WHOLE = (
    "it is a pickle of a whole module, which runs code when it is loaded, so it never is: where the module is at hand, call "
    "safetensors.torch.save_file(model.state_dict(), '{stem}.safetensors'), and write model.py:FACTORY?weights={stem}.safetensors"
)
ENDINGS = (".pt", ".pth", ".ckpt", ".bin")
"""Endings of files of torch, which hold weights, a program or a module."""
MODULE_STATE = {"_modules", "_parameters"}
"""Attributes that every pickled module has, and no state dict."""
MOST_BYTES = 1 << 24
"""Largest number of bytes of a pickle in which names are looked for."""
MOST_PICKLES = 4
"""Number of pickles at the start of a file of old versions of torch; the last one holds the object."""


def torch_remedy(path: Path) -> str:
    """What to do about a file in place of a model, where its ending is one of torch; empty where the ending says all."""
    if path.suffix.lower() not in ENDINGS or not path.is_file():
        return ""
    content = content_of(path)
    if content == PROGRAM:
        return SCRIPTED
    if content not in (TENSORS, "a zip archive", PICKLE):
        return f"it ends with {path.suffix} and is no file of torch{content and f', but {content}'}: save or fetch it again"
    return WHOLE if set(_texts(_pickle_of(path))) >= MODULE_STATE else WEIGHTS


def _pickle_of(path: Path) -> bytes:
    """The beginning of the pickle in a file of torch; empty for an archive without one."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
            return archive.open(names[0]).read(MOST_BYTES) if names else b""
    except (NotImplementedError, RuntimeError):  # packed by an unknown method, or with a password
        return b""
    except zipfile.BadZipFile:
        with bounded.open_regular(path) as stream:
            return stream.read(MOST_BYTES)


def _texts(content: bytes) -> Iterator[str]:
    """The texts in the pickles at the start of a file, as far as they can be read."""
    stream = BytesIO(content)
    try:
        for _ in range(MOST_PICKLES):
            for _, argument, _ in pickletools.genops(stream):
                if isinstance(argument, str):
                    yield argument
    except (ValueError, UnicodeError, IndexError):  # damaged, cut off, or followed by something else
        return
