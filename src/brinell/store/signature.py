"""Who signed a run: the manifest signed with an SSH key, as `ssh-keygen -Y sign` signs a file.

The manifest holds the hashes of records and arrays, so whoever signs it signs them. Tables and page are not among them:
`brinell verify` makes them again. The signature lies beside it as `manifest.json.sig`, in the format of OpenSSH (PROTOCOL.sshsig
in its sources), and `ssh-keygen -Y verify -n brinell-run` reads it too. Keys are Ed25519, in the files that `ssh-keygen -t
ed25519` writes; whose signature counts is said by a file of allowed signers (ssh-keygen(1), ALLOWED SIGNERS) or by public keys,
one a line.

Deviations: no certificates, no other kinds of keys, and of the options of a signer `namespaces` alone, since a line that is
understood in part would allow more than it says.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line
from brinell.store.files import write_text
from brinell.store.run import LAYOUT, Run

NAMESPACE = "brinell-run"
SIGNATURE = f"{LAYOUT.manifest}.sig"
"""The file beside the manifest."""
KIND = "ssh-ed25519"
MAGIC = b"SSHSIG"
HASHES = ("sha512", "sha256")
MOST = 1 << 16
"""Bytes of a key or a signature at most."""
BEGIN, END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
LINE = re.compile(rf"(?P<before>.*?)\s*\b{KIND}\s+(?P<key>[A-Za-z0-9+/=]+)(?:\s.*)?")
NAMESPACES = re.compile(r'(?P<who>\S+)(?:\s+namespaces="(?P<spaces>[^"]*)")?')


class Signed(NamedTuple):
    """A signature that holds."""

    who: str
    """The signer as the file of allowed signers calls it; the fingerprint where it has no name."""
    fingerprint: str
    """SHA-256 of the public key, as ssh-keygen shows it."""


def sign(path: Path, key: Path, passphrase: Callable[[], str | None] = lambda: None) -> Signed:
    """Sign a finished run whose files are those of its manifest. Returns whose signature it now carries.

    Args:
        path: the run folder.
        key: the file of an Ed25519 private key.
        passphrase: asked for where the key has one.

    Raises:
        RequestError: no finished run, files that were changed, or no key that can sign.
        StoppedError: the folder cannot be written.
    """
    run = Run.open(path)
    if run.manifest["state"] != "finished" or not run.manifest.get("files"):
        raise RequestError(f"{path} is not finished: go on with brinell audit --resume --out {path}, then sign it")
    _check_files(run)
    private = _private(key, passphrase)
    public = _text(KIND.encode()) + _text(private.public_key().public_bytes_raw())
    content = bounded.read(path / LAYOUT.manifest, bounded.MOST_TEXT)
    signature = _text(KIND.encode()) + _text(private.sign(_signed(content, "sha512")))
    blob = MAGIC + (1).to_bytes(4, "big") + b"".join(map(_text, (public, NAMESPACE.encode(), b"", b"sha512", signature)))
    told = base64.b64encode(blob).decode()
    lines = [told[start : start + 70] for start in range(0, len(told), 70)]
    write_text(path / SIGNATURE, "\n".join([BEGIN, *lines, END]) + "\n")
    return Signed(_fingerprint(public), _fingerprint(public))


def signed_by(path: Path, keys: Path) -> Signed:
    """Whose signature a run carries, if it is one of some.

    Args:
        path: the run folder.
        keys: the file of allowed signers, or of public keys.

    Raises:
        RequestError: no signature, a damaged one, one of other content or of somebody else, or files that the manifest does not
            list as they are.
    """
    run, allowed = Run.open(path), _allowed(keys)
    try:
        text = bounded.read(path / SIGNATURE, MOST).decode("ascii")
    except FileNotFoundError:
        raise RequestError(f"{path} is not signed: it has no {SIGNATURE}; brinell sign {path} --key FILE signs it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path / SIGNATURE} is no signature: {one_line(error)}") from None
    try:
        public, hashed, signature = _unpacked(text)
    except (ValueError, binascii.Error) as error:
        raise RequestError(
            f"{path / SIGNATURE} is no signature of a run ({one_line(error)}): have the run signed again"
        ) from None
    if public not in allowed:
        raise RequestError(f"{path} is signed by {_fingerprint(public)}, which is none of the signers in {keys}")
    content = bounded.read(path / LAYOUT.manifest, bounded.MOST_TEXT)
    if not _holds(public, signature, _signed(content, hashed)):
        raise RequestError(f"{path / SIGNATURE} is the signature of something else: the manifest was changed after it was signed")
    _check_files(run)
    return Signed(allowed[public], _fingerprint(public))


def signers(path: Path | str, keys: Path | str | None) -> list[str]:
    """Who signed a run, in a sentence; nothing where nobody asks. Errors as of `signed_by`."""
    if keys is None:
        return []
    found = signed_by(Path(path), Path(keys))
    return [f"the manifest, and with it records and arrays, is signed by {found.who} ({found.fingerprint})"]


def _check_files(run: Run) -> None:
    """Refuse a run whose records and arrays are not those of its manifest."""
    listed, there = run.manifest.get("files") or {}, run.digests()
    for name in sorted({*listed, *there}):
        if listed.get(name) != there.get(name):
            what = "is missing" if name not in there else "is not in the manifest" if name not in listed else "was changed"
            raise RequestError(f"{run.path / name} {what}: a signature is of all files of a run as they were when it ended")


def _signed(content: bytes, hashed: str) -> bytes:
    """What an SSH signature is of, for some content."""
    parts = (NAMESPACE.encode(), b"", hashed.encode(), hashlib.new(hashed, content).digest())
    return MAGIC + b"".join(map(_text, parts))


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _parts(blob: bytes, count: int) -> list[bytes]:
    """As many texts, each behind its length, and nothing after them.

    Raises:
        ValueError: the blob is something else.
    """
    found = []
    for _ in range(count):
        size = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + size or len(blob) < 4:
            raise ValueError("it is cut short")
        found.append(blob[4 : 4 + size])
        blob = blob[4 + size :]
    if blob:
        raise ValueError("something follows its end")
    return found


def _unpacked(text: str) -> tuple[bytes, str, bytes]:
    """The public key, the name of the hash and the 64 bytes of an SSH signature in the namespace of runs.

    Raises:
        ValueError: it is something else; binascii.Error is one, too.
    """
    lines = text.split("\n")
    if lines[0].strip() != BEGIN or END not in (line.strip() for line in lines):
        raise ValueError("it is no SSH signature")
    blob = base64.b64decode("".join(lines[1 : [line.strip() for line in lines].index(END)]), validate=True)
    if blob[:6] != MAGIC or blob[6:10] != (1).to_bytes(4, "big"):
        raise ValueError("it is no SSH signature of version 1")
    public, space, reserved, hashed, signature = _parts(blob[10:], 5)
    if space != NAMESPACE.encode() or reserved:
        raise ValueError(f"it is for {space[:40]!r}, and not for {NAMESPACE}")
    if hashed.decode("ascii", "replace") not in HASHES:
        raise ValueError(f"its hash is {hashed[:20]!r}")
    (kind, key), (signed_with, raw) = _parts(public, 2), _parts(signature, 2)
    if kind != KIND.encode() or signed_with != kind or len(key) != 32 or len(raw) != 64:
        raise ValueError(f"its key is no {KIND}")
    return public, hashed.decode(), raw


def _allowed(keys: Path) -> dict[bytes, str]:
    """The public keys of a file, each with whose it is."""
    try:
        lines = bounded.text(keys).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"the file of signers {keys} cannot be read: {one_line(error)}") from None
    found: dict[bytes, str] = {}
    for number, line in enumerate(lines, 1):
        if not (text := line.strip()) or text.startswith("#"):
            continue
        match = LINE.fullmatch(text)
        told = NAMESPACES.fullmatch(match["before"]) if match and match["before"] else None
        if match is None or bool(match["before"]) != (told is not None):
            raise RequestError(
                f'{keys}, line {number}: a signer is written NAME {KIND} KEY, or NAME namespaces="{NAMESPACE}" {KIND} KEY'
            )
        if told and told["spaces"] is not None and NAMESPACE not in told["spaces"].split(","):
            continue
        try:
            public = base64.b64decode(match["key"], validate=True)
            kind, key = _parts(public, 2)
        except ValueError as error:
            raise RequestError(f"{keys}, line {number}, holds no public key: {one_line(error)}") from None
        if kind != KIND.encode() or len(key) != 32:
            raise RequestError(f"{keys}, line {number}, holds no {KIND} key: make one by ssh-keygen -t ed25519")
        found[public] = told["who"] if told else _fingerprint(public)
    if not found:
        raise RequestError(f"{keys} names no signer for {NAMESPACE}: write NAME {KIND} KEY, one a line")
    return found


def _private(file: Path, passphrase: Callable[[], str | None]) -> Any:
    """The Ed25519 private key in a file."""
    serialization, ed25519 = _library("serialization"), _library("ed25519")
    try:
        content = bounded.read(file, MOST)
    except OSError as error:
        raise RequestError(f"the key {file} cannot be read: {one_line(error)}") from None
    try:
        try:
            key = serialization.load_ssh_private_key(content, None)
        except TypeError:  # it has a passphrase
            word = passphrase()
            if word is None:
                raise RequestError(f"{file} has a passphrase, and there is no terminal to ask for it at") from None
            key = serialization.load_ssh_private_key(content, word.encode())
    except RequestError:
        raise
    except Exception as error:
        raise RequestError(f"{file} holds no SSH private key that can be read ({one_line(error, 120)}): name one") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise RequestError(f"{file} is no Ed25519 key: make one by ssh-keygen -t ed25519 -f FILE")
    return key


def _holds(public: bytes, signature: bytes, content: bytes) -> bool:
    key = _library("ed25519").Ed25519PublicKey.from_public_bytes(_parts(public, 2)[1])
    try:
        key.verify(signature, content)
    except Exception:  # InvalidSignature, and whatever a key that is no point of the curve raises
        return False
    return True


def _fingerprint(public: bytes) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")


def _library(name: str) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise RequestError("the library cryptography is not installed, which signs: pip install 'brinell[sign]'") from None
    return {"serialization": serialization, "ed25519": ed25519}[name]
