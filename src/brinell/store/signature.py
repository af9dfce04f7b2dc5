"""Signatures of runs: the manifest signed with an SSH key, by `ssh-keygen -Y` of OpenSSH.

The manifest holds the hashes of records and arrays, so its signature covers them. It does not cover
tables and page: `brinell verify` makes them again. `ssh-keygen -Y sign -f KEY -n brinell-run
RUN/manifest.json` writes it to `manifest.json.sig`. A file of allowed signers (ssh-keygen(1),
ALLOWED SIGNERS) or of public keys, one a line, decides whose signature counts; ssh-keygen reads it.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from brinell.core import bounded
from brinell.core.errors import RequestError, one_line
from brinell.store.folder import MANIFEST, SIGNATURE

NAMESPACE = "brinell-run"
"""Name of the signature file, in the folder of the manifest."""
MOST = 1 << 16
"""Bytes of a signature at most."""
PUBLIC_KEY = re.compile(r"^(?=(ssh|ecdsa|sk)-\S+ +[A-Za-z0-9+/=]+)", flags=re.MULTILINE)
"""The start of a line that is a public key alone, without the name of a signer."""
FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]+")


def signers(path: Path, keys: Path | str | None) -> list[str]:
    """Sentence that names the signer of a folder, as a list; empty without `keys`.

    Args:
        path: the folder. Its files are those of its manifest, which is for `brinell verify` to say.
        keys: the file of allowed signers, or of public keys.
    """
    if keys is None:
        return []

    # Copies, so that the files cannot change between two looks at them.
    with tempfile.TemporaryDirectory(prefix="brinell-") as folder:
        manifest = Path(folder) / MANIFEST
        signature = Path(folder) / SIGNATURE
        allowed = Path(folder) / "signers"
        manifest.write_bytes(bounded.read(path / MANIFEST, bounded.MOST_TEXT))
        try:
            signature.write_bytes(bounded.read(path / SIGNATURE, MOST))
        except FileNotFoundError:
            raise RequestError(
                f"{path} is not signed: ssh-keygen -Y sign -f KEY -n {NAMESPACE} "
                f"{path / MANIFEST} makes it"
            ) from None
        except OSError as error:
            raise RequestError(f"{path / SIGNATURE} is no signature: {one_line(error)}") from None
        try:
            # ssh-keygen wants a name before each key: `*` stands for any.
            allowed.write_text(PUBLIC_KEY.sub("* ", bounded.text(Path(keys))), encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError(
                f"the file of signers {keys} cannot be read: {one_line(error)}"
            ) from None

        # First whether the signature is of this manifest, whoever made it; then whose it is.
        check = ("check-novalidate", "-n", NAMESPACE, "-s", str(signature))
        outcome = _ssh_keygen(*check, stdin=manifest)
        fingerprint = "".join(FINGERPRINT.findall(outcome.stdout)[:1])
        if outcome.returncode or not fingerprint:
            lines = [f"exit code {outcome.returncode}", *outcome.stderr.strip().splitlines()]
            raise RequestError(
                f"{path / SIGNATURE} is no signature of the manifest as it is "
                f"(ssh-keygen: {lines[-1].strip()[:200]}): the manifest was changed "
                "after it was signed, or the signature is of something else; have it signed again"
            )
        signer = _signer(manifest, signature, allowed)
        if signer is None:
            raise RequestError(
                f"{path} is signed by {fingerprint}, which is none of the signers "
                f"for {NAMESPACE} in {keys}"
            )

    name = "" if signer == "*" else f"{signer} "
    return [f"the manifest, and with it records and arrays, is signed by {name}({fingerprint})"]


def _signer(manifest: Path, signature: Path, allowed: Path) -> str | None:
    """The allowed signer who made a signature of a manifest; None if it is nobody's.

    The key of the signature may stand behind several names, of which one suffices.
    """
    names = _ssh_keygen("find-principals", "-s", str(signature), "-f", str(allowed))
    for name in names.stdout.splitlines() if not names.returncode else ():
        checked = ("-n", NAMESPACE, "-s", str(signature), "-f", str(allowed), "-I", name)
        if not _ssh_keygen("verify", *checked, stdin=manifest).returncode:
            return name
    return None


def _ssh_keygen(
    action: str, *arguments: str, stdin: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The outcome of an action of ssh-keygen on signatures."""
    with (stdin or Path(os.devnull)).open("rb") as content:
        try:
            return subprocess.run(
                ["ssh-keygen", "-Y", action, *arguments],
                stdin=content,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
            )
        except FileNotFoundError:
            raise RequestError(
                "ssh-keygen is not installed, which checks signatures: install OpenSSH"
            ) from None
