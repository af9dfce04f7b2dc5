"""Who signed a run: real keys, made here; a forged, foreign or missing signature is refused in one
line.
"""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from _helpers import Recorder, run_audit
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.store.signature import NAMESPACE, SIGNATURE, signers
from brinell.studies.register import write_page

pytestmark = pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="needs ssh-keygen")


def line(x):
    import torch

    z = 10 * (x[:, 0] - 0.5)
    return torch.stack([-z, z], 1)


def key_of(folder: Path, name: str, kind: str = "ed25519", word: str = "") -> Path:
    """A new key pair in a file and in one that ends in .pub."""
    arguments = [
        "ssh-keygen",
        "-q",
        "-t",
        kind,
        "-N",
        word,
        "-C",
        f"{name}@here",
        "-f",
        str(folder / name),
    ]
    subprocess.run(arguments, check=True, stdin=subprocess.DEVNULL)
    return folder / name


def sign(run: Path, key: Path) -> None:
    """Sign a run as docs/reference/trust.md says."""
    (run / SIGNATURE).unlink(missing_ok=True)
    subprocess.run(
        [
            "ssh-keygen",
            "-q",
            "-Y",
            "sign",
            "-f",
            str(key),
            "-n",
            NAMESPACE,
            str(run / "manifest.json"),
        ],
        check=True,
        capture_output=True,
    )


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ann", "bob"):
        key_of(folder, name)
    (folder / "signers").write_text(
        "# who may\n\nann@example.org " + (folder / "ann.pub").read_text()
    )
    return folder


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x, y = (
        np.random.default_rng(3).uniform(0.2, 0.55, (6, 2)).astype(np.float32),
        np.zeros(6, dtype=int),
    )
    folder = tmp_path_factory.mktemp("whole") / "run"
    run_audit(folder, Recorder(line), x, y, eps="0:0.3:3", attack=("fgsm",))
    write_page(folder)
    return folder


@pytest.fixture
def run(full_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(full_run, tmp_path / "run"))


def test_a_signature_holds_and_says_whose_it_is(
    run: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sign(run, keys / "ann")
    (claim,) = signers(run, keys / "signers")
    assert claim.startswith(
        "the manifest, and with it records and arrays, is signed by ann@example.org (SHA256:"
    )
    assert signers(run, keys / "ann.pub")[0].endswith(claim.rpartition(" ")[2])
    assert cli(["verify", str(run), "--signed-by", str(keys / "signers"), "--replay", "0"]) == 4, (
        "a signature is no foreign file"
    )
    assert claim in " ".join(capsys.readouterr().out.split())
    (run / SIGNATURE).unlink()
    assert cli(["verify", str(run), "--signed-by", str(keys / "signers")]) == 2
    err = capsys.readouterr().err
    assert "is not signed" in err and err.count("\n") == 1


def test_a_signature_for_another_use_is_refused(run: Path, tmp_path: Path) -> None:
    key = key_of(tmp_path, "made")
    (tmp_path / "signers").write_text("carl " + (tmp_path / "made.pub").read_text())
    arguments = [
        "ssh-keygen",
        "-q",
        "-Y",
        "sign",
        "-f",
        str(key),
        "-n",
        "file",
        str(run / "manifest.json"),
    ]
    subprocess.run(arguments, check=True, capture_output=True)
    with pytest.raises(
        RequestError, match="is no signature of the manifest as it is .*namespace does not match"
    ):
        signers(run, tmp_path / "signers")


def test_what_is_not_signed_as_it_is_is_refused(run: Path, keys: Path) -> None:
    file = keys / "signers"
    with pytest.raises(RequestError, match="is not signed: ssh-keygen -Y sign"):
        signers(run, file)
    sign(run, keys / "bob")
    with pytest.raises(
        RequestError,
        match="is signed by SHA256:.*, which is none of the signers for brinell-run in",
    ):
        signers(run, file)
    sign(run, keys / "ann")
    signers(run, file)
    manifest, signature = (run / "manifest.json").read_bytes(), (run / SIGNATURE).read_text()
    content = json.loads(manifest)
    for changed in (content | {"command": "another"}, content | {"finished": "another"}):
        (run / "manifest.json").write_text(json.dumps(changed))
        with pytest.raises(
            RequestError,
            match="is no signature of the manifest as it is .*: the manifest was changed",
        ):
            signers(run, file)
    (run / "manifest.json").write_bytes(manifest)
    blob = base64.b64decode("".join(signature.split("\n")[1:-2]))
    for place in range(0, len(blob), 7):
        forged = bytearray(blob)
        forged[place] ^= 16
        (run / SIGNATURE).write_text(
            "\n".join(
                [
                    signature.split("\n")[0],
                    base64.b64encode(forged).decode(),
                    *signature.split("\n")[-2:],
                ]
            )
        )
        with pytest.raises(
            RequestError, match="is no signature of the manifest|none of the signers"
        ) as error:
            signers(run, file)
        assert "\n" not in str(error.value)
    for text in (
        "",
        "ü",
        "-----BEGIN SSH SIGNATURE-----\n",
        signature.replace("SSH", "PGP"),
        "x" * 10**6,
    ):
        (run / SIGNATURE).write_text(text)
        with pytest.raises(RequestError, match=r"manifest\.json\.sig"):
            signers(run, file)


def test_without_ssh_keygen_nothing_is_checked(
    run: Path,
    keys: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sign(run, keys / "ann")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert cli(["verify", str(run), "--signed-by", str(keys / "signers")]) == 2
    err = capsys.readouterr().err
    assert "ssh-keygen is not installed" in err and err.count("\n") == 1


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_every_kind_of_key_signs(run: Path, tmp_path: Path, kind: str) -> None:
    sign(run, key_of(tmp_path, "other", kind))
    assert "(SHA256:" in signers(run, tmp_path / "other.pub")[0]


def test_a_file_of_signers_that_is_not_understood_allows_nobody(
    run: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory, subtests: pytest.Subtests
) -> None:
    for line in [
        "ann cert-authority KEY",
        'ann valid-before="20200101" KEY',
        'ann what="else" KEY',
        "ann ssh-rsa AAAA",
        "ann ssh-ed25519 AAAA",
        "# nobody",
        'ann namespaces="file,git" KEY',
    ]:
        with subtests.test(str((line,))):
            tmp_path = tmp_path_factory.mktemp("row")
            sign(run, keys / "ann")
            (tmp_path / "signers").write_text(
                line.replace("KEY", (keys / "ann.pub").read_text().strip()) + "\n"
            )
            with pytest.raises(
                RequestError, match="which is none of the signers for brinell-run in"
            ):
                signers(run, tmp_path / "signers")
