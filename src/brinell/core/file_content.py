"""The kind of a file by its first bytes, for messages about a file of another ending.

Nothing of it is run.
"""

import zipfile
from pathlib import Path

from brinell.core import bounded
from brinell.core.errors import RequestError

TENSORS = "weights of torch"
PICKLE = "a pickle, as torch.save writes it"
PROGRAM = "a TorchScript program"
STARTS = {
    b"\x80": PICKLE,
    b"\x89HDF": "an HDF5 file, as Keras writes it",
    b"\x93NUMPY": "a NumPy array",
    b"\x1f\x8b": "a gzip archive",
    b"version https://git-lfs": "the pointer of Git LFS to a file that was not fetched: git lfs pull fetches "
    "it",
    b"<": "a page of the web or XML",
    b"{": "JSON",
}
"""First bytes of files, and what they are."""
START = 64
"""Number of bytes that are read."""


def content_of(file: Path) -> str:
    """The kind of a file: a noun with its article; empty if its first bytes do not tell."""
    try:
        with bounded.open_regular(file) as stream, zipfile.ZipFile(stream) as archive:
            # Both are zip archives of pickles; only TorchScript has a file of constants, and it is
            # a program.
            names = archive.namelist()
        if any(name.endswith("/constants.pkl") for name in names):
            return PROGRAM
        is_torch = any(name.endswith("/data.pkl") for name in names)
        return TENSORS if is_torch else "a zip archive"
    except (OSError, zipfile.BadZipFile):
        pass

    with bounded.open_regular(file) as stream:
        start = stream.read(START)
    if not start:
        return "nothing"
    # Safetensors begin with the length of a header in JSON, in eight bytes.
    if start[8:10] == b'{"':
        return "tensors in the format safetensors"
    for prefix, content in STARTS.items():
        if start.startswith(prefix):
            return content
    is_text = all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in start)
    # Text decodes here for sure: each byte was seen to be printable ASCII.
    return f"text that begins with {start[:20].decode()!r}" if is_text else ""


def check_graph(file: Path) -> None:
    """Refuse a file in the place of an ONNX graph whose first bytes are those of another format."""
    content = content_of(file)
    if content in (TENSORS, PICKLE):
        # Weights in the place of a graph are the most frequent mistake, so the whole line is said.
        renamed = file.with_suffix(".pt")
        raise RequestError(
            f"{file} holds {content}, and no ONNX file: rename it to {renamed}, "
            f"and write model.py:FACTORY?weights={renamed}, "
            "where FACTORY is a function in model.py that returns the network"
        )

    if content:
        raise RequestError(
            f"{file} holds {content}, and no ONNX file: export the network again "
            "by torch.onnx.export"
        )
