"""Who signed a run: the manifest signed with an SSH key, by `ssh-keygen -Y` of OpenSSH.

The manifest holds the hashes of records and arrays, so whoever signs it signs them. Tables and page are not among them:
`brinell verify` makes them again. The signature lies beside it as `manifest.json.sig`. Whose signature counts is said by a file
of allowed signers (ssh-keygen(1), ALLOWED SIGNERS) or by public keys, one a line; ssh-keygen reads it and decides.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line
from brinell.store.files import write_text
from brinell.store.folder import MANIFEST
from brinell.store.run import Run

NAMESPACE = "brinell-run"
SIGNATURE = f"{MANIFEST}.sig"
"""The file beside the manifest."""
MOST = 1 << 16
"""Bytes of a signature at most."""
PUBLIC_KEY = re.compile(r"^(?=(ssh|ecdsa|sk)-\S+ +[A-Za-z0-9+/=]+)", flags=re.MULTILINE)
"""The start of a line that is a public key alone, without the name of a signer."""
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]+")


class Signed(NamedTuple):
    """A signature that holds."""

    who: str
    """The signer as the file of allowed signers calls it; the fingerprint where it has no name."""
    fingerprint: str
    """SHA-256 of the public key, as ssh-keygen shows it."""


def sign(path: Path, key: Path) -> Signed:
    """Sign a finished run whose files are those of its manifest. Returns whose signature it now carries.

    ssh-keygen asks for the key's passphrase itself, at a terminal, or takes the key of a running agent.

    Args:
        path: the run folder.
        key: the file of a private key, or of the public key of one that an agent holds.

    Raises:
        RequestError: no finished run, files that were changed, no key that can sign, or no ssh-keygen.
        StoppedError: the folder cannot be written.
    """
    run = Run.open(path)
    if run.manifest["state"] != "finished" or not run.manifest.get("files"):
        raise RequestError(f"{path} is not finished: go on with brinell audit --resume --out {path}, then sign it")
    _check_files(run)
    with tempfile.TemporaryDirectory(prefix="brinell-") as folder:
        manifest = Path(folder) / MANIFEST
        manifest.write_bytes(bounded.read(path / MANIFEST, bounded.MOST_TEXT))
        done = _ssh_keygen("sign", "-n", NAMESPACE, "-f", str(key.absolute()), str(manifest))
        if done.returncode:
            raise RequestError(
                f"{key} cannot sign (ssh-keygen: {_reason(done)}): name the file of an SSH private key; "
                "one with a passphrase needs a terminal or ssh-agent"
            )
        fingerprint = _fingerprint(manifest, Path(folder) / SIGNATURE)
        write_text(path / SIGNATURE, (Path(folder) / SIGNATURE).read_text(encoding="ascii"))
    return Signed(fingerprint, fingerprint)


def signed_by(path: Path, keys: Path) -> Signed:
    """Whose signature a run carries, if it is one of some.

    Args:
        path: the run folder.
        keys: the file of allowed signers, or of public keys.

    Raises:
        RequestError: no signature, a damaged one, one of other content or of somebody else, or files that the manifest does not
            list as they are.
    """
    run = Run.open(path)
    with tempfile.TemporaryDirectory(prefix="brinell-") as folder:
        manifest, signature, allowed = (Path(folder) / name for name in (MANIFEST, SIGNATURE, "signers"))
        manifest.write_bytes(bounded.read(path / MANIFEST, bounded.MOST_TEXT))
        try:
            signature.write_bytes(bounded.read(path / SIGNATURE, MOST))
        except FileNotFoundError:
            raise RequestError(f"{path} is not signed: it has no {SIGNATURE}; brinell sign {path} --key FILE signs it") from None
        except OSError as error:
            raise RequestError(f"{path / SIGNATURE} is no signature: {one_line(error)}") from None
        try:
            allowed.write_text(PUBLIC_KEY.sub("* ", bounded.text(keys)), encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(f"the file of signers {keys} cannot be read: {one_line(error)}") from None
        try:
            fingerprint = _fingerprint(manifest, signature)
        except ValueError as error:
            raise RequestError(
                f"{path / SIGNATURE} is no signature of the manifest as it is (ssh-keygen: {error}): the manifest was changed "
                "after it was signed, or the signature is of something else; have the run signed again"
            ) from None
        who = _signer(manifest, signature, allowed)
        if who is None:
            raise RequestError(f"{path} is signed by {fingerprint}, which is none of the signers for {NAMESPACE} in {keys}")
    _check_files(run)
    return Signed(fingerprint if who == "*" else who, fingerprint)


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


def _fingerprint(manifest: Path, signature: Path) -> str:
    """The fingerprint of the key that signed a manifest; a ValueError with ssh-keygen's reason where it did not."""
    done = _ssh_keygen("check-novalidate", "-n", NAMESPACE, "-s", str(signature), stdin=manifest)
    match = FINGERPRINT.search(done.stdout)
    if done.returncode or match is None:
        raise ValueError(_reason(done))
    return match[0]


def _signer(manifest: Path, signature: Path, allowed: Path) -> str | None:
    """The allowed signer whose key signed a manifest; None where nobody allowed did."""
    names = _ssh_keygen("find-principals", "-s", str(signature), "-f", str(allowed))
    for name in names.stdout.splitlines() if not names.returncode else ():
        checked = ("-n", NAMESPACE, "-s", str(signature), "-f", str(allowed), "-I", name)
        if not _ssh_keygen("verify", *checked, stdin=manifest).returncode:
            return name
    return None


def _ssh_keygen(action: str, *arguments: str, stdin: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `ssh-keygen -Y`, where it is installed. It asks for nothing where standard input is no terminal."""
    asks = stdin is None and sys.stdin is not None and sys.stdin.isatty()
    with (stdin or Path(os.devnull)).open("rb") as content:
        try:
            return subprocess.run(
                ["ssh-keygen", "-Y", action, *arguments],
                stdin=None if asks else content,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env=os.environ | ({} if asks else {"SSH_ASKPASS_REQUIRE": "never"}),
                start_new_session=not asks,  # no terminal to ask at
            )
        except FileNotFoundError:
            raise RequestError("ssh-keygen is not installed, which signs runs and checks signatures: install OpenSSH") from None


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Why ssh-keygen refused, in its own words."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"exit code {done.returncode}"
