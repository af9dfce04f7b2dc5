"""Files of plug-ins are never imported by the process of a study, whichever command names them, and records are the same."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

import brinell
from _pictures import write_pictures
from _queries import write_query
from brinell import plugins
from brinell.cli import run as cli
from brinell.core.errors import RequestError
from brinell.studies import register

PLANT = """
import os
from dataclasses import dataclass
from brinell.attacks.pgd import PGD
from brinell.detectors.feature_squeezing import FeatureSqueezing
from brinell.distortions.gaussian_noise import GaussianNoise
from brinell.explainers.gradient import Gradient
from brinell.attacks.mi_fgsm import MIFGSM

try:  # a child process cannot write, so that whoever wrote this file is not one
    with open({trace!r}, "a") as trace:
        trace.write(str(os.getpid()) + " ")
except OSError:
    pass


@dataclass(frozen=True, kw_only=True)
class OwnAttack(PGD):
    \"""An attack of one's own.\"""


@dataclass(frozen=True, kw_only=True)
class OwnTransfer(MIFGSM):
    \"""An attack of one's own.\"""


@dataclass(frozen=True, kw_only=True)
class OwnDistortion(GaussianNoise):
    \"""A distortion of one's own.\"""


@dataclass(frozen=True, kw_only=True)
class OwnDetector(FeatureSqueezing):
    \"""A detector of one's own.\"""


@dataclass(frozen=True, kw_only=True)
class OwnExplainer(Gradient):
    \"""An explainer of one's own.\"""
"""
COMMANDS: dict[tuple[str, str], str] = {
    ("audit", "attack"): "audit --samples 16 --eps 0.1,0.2 --attack {file}:OwnAttack?steps=3 --out {out}",
    (
        "audit",
        "distortions",
    ): "audit --samples 4 --norm l2 --eps 1 --attack rlab?steps=20&distortions={file}:OwnDistortion --out {out}",
    ("benchmark", "distortions"): "benchmark --samples 4 --steps 40 --distortions {file}:OwnDistortion --out {out}",
    ("corrupt", "kind"): "corrupt --samples 8 --kind {file}:OwnDistortion --placed 2 --steps 20 --out {out}",
    ("dense", "attack"): "dense --data masks:{work}/pictures --model {work}/pictures/network.py:network --eps 0.1 "
    "--attack {file}:OwnAttack?steps=3 --out {out}",
    ("dense-transfer", "attack"): "dense-transfer --data masks:{work}/pictures --eps 0.1 --attack {file}:OwnAttack?steps=3 "
    "--model {work}/pictures/network.py:network?name=a --model {work}/pictures/network.py:network?name=b --out {out}",
    (
        "detect",
        "detector",
    ): "detect {run} --train digits?split=train --fit 40 --samples 8 --steps 3 --detector {file}:OwnDetector --out {out}",
    ("explain", "method"): "explain --samples 4 --method {file}:OwnExplainer --out {out}",
    ("harden", "attack"): "harden --epochs 0.2 --samples 16 --attack {file}:OwnAttack?steps=3 --out {out}",
    ("harden", "recipe"): "harden --epochs 0.2 --samples 16 --attack fgsm --recipe distortions(distortions={file}:OwnDistortion) "
    "--out {out}",
    ("train-agent", "attack"): "train-agent --samples 8 --steps 2 --probes 2 --fits 2 --episode-steps 10 --surrogates 0 "
    "--attack rlab?distortions={file}:OwnDistortion&patch=4 --out {out}.safetensors",
    (
        "transfer",
        "attack",
    ): "transfer --samples 8 --model digits-cnn --model digits-cnn?width=8 --attack {file}:OwnTransfer?steps=2 --out {out}",
    ("certify", "attack"): "certify --samples 8 --eps 0.05 --method crown --attack {file}:OwnAttack?steps=3 --out {out}",
    ("falsify", "attack"): "falsify {work}/query.vnnlib --network {work}/net.onnx --bound none --timeout 1 --starts 2 "
    "--attack {file}:OwnAttack?steps=3",
    ("verify", "attack"): "verify {foreign} --attack {file}:OwnAttack?steps=3",
}
"""A command for each setting by which a study names files of plug-ins."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a planted file, a run to detect in, and a run whose attack is the file."""
    work = tmp_path_factory.mktemp("files")
    (work / "plant.py").write_text(PLANT.replace("{trace!r}", repr(str(work / "trace"))))
    assert cli(f"audit --samples 8 --eps 0.1,0.2 --attack fgsm --out {work / 'run'} --quiet".split()) == 0
    attack = f"{work / 'plant.py'}:OwnAttack?steps=3"
    assert cli(f"audit --samples 8 --eps 0.1,0.2 --attack {attack} --out {work / 'foreign'} --quiet".split()) == 0
    assert not (work / "trace").exists()
    write_query(work)
    write_pictures(work / "pictures")
    return work


def tables(out: Path) -> dict[str, Any]:
    """The rows below a folder, without times."""
    files = {str(path.relative_to(out)): parquet.read_table(path).to_pydict() for path in sorted(out.rglob("*.parquet"))}
    return {name: {key: value for key, value in rows.items() if key != "seconds"} for name, rows in files.items()}


def test_each_setting_that_names_files_has_a_command() -> None:
    settings = set()
    for verb, study in register.studies().items():
        for setting in study.request.model_fields:
            mark = study.request.names_of(setting)
            if mark is not None and mark.kind in plugins.ISOLATED:
                settings.add((verb, setting))
    inherited = {("study", "attack")}  # of an audit, with which it begins
    assert settings - inherited <= COMMANDS.keys()


@pytest.mark.nightly
def test_no_command_imports_the_file(work: Path, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests) -> None:
    for name in COMMANDS:
        with subtests.test(str((name,))):
            trace, outs = work / "trace", [work / f"{'-'.join(name)}-{place}" for place in ("apart", "here")]
            for out, words in zip(outs, ([], ["--in-process"]), strict=True):
                trace.unlink(missing_ok=True)
                line = COMMANDS[name].format(
                    file=work / "plant.py", out=out, run=work / "run", foreign=work / "foreign", work=work
                )
                code = cli([*line.split(), *words])
                assert code == 0, capsys.readouterr().err
                assert trace.exists() == bool(words)
            first, second = (tables(out) for out in outs)
            assert list(map(str, first.values())) == list(map(str, second.values()))
            if name[0] not in ("train-agent", "falsify", "verify"):
                assert first


@pytest.mark.slow
def test_a_dry_run_and_calls_import_nothing(work: Path) -> None:
    (work / "trace").unlink(missing_ok=True)
    attack = f"{work / 'plant.py'}:OwnAttack?steps=3"
    assert cli(["audit", "--dry-run", "--samples", "8", "--attack", attack]) == 0
    x, y = np.random.default_rng(0).random((8, 6), dtype=np.float32), np.arange(8) % 2

    def model(x: Any) -> Any:
        return np.stack([x.mean(1), 1 - x.mean(1)], 1)

    settings = {"eps": 0.1, "kind": "vector", "answers": "probabilities"}
    with pytest.raises(brinell.BrinellError, match="needs gradients"):
        brinell.attack(model, x, y, attack, **settings)
    assert not (work / "trace").exists()


@pytest.mark.slow
def test_a_plugin_of_an_installed_package(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed, described and run without an import."""
    (work / "trace").unlink(missing_ok=True)
    site = work / "site"
    (site / "own-1.dist-info").mkdir(parents=True)
    (site / "own_plugins.py").write_text((work / "plant.py").read_text())
    (site / "own-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    (site / "own-1.dist-info" / "entry_points.txt").write_text("[brinell.attack]\nown-attack = own_plugins:OwnAttack\n")
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()
    plugins._installed.cache_clear()
    try:
        assert cli(["plugins", "attack"]) == 0
        listing = capsys.readouterr().out
        assert "own-attack" in listing and "An attack of one's own." in listing
        assert cli(["audit", "--samples", "8", "--eps", "0.1", "--attack", "own-attack?steps=2", "--out", str(work / "own")]) == 0
        assert not (work / "trace").exists()
    finally:
        plugins._installed.cache_clear()


@pytest.mark.slow
def test_an_explainer_that_opens_the_network_says_what_to_do(work: Path) -> None:
    with pytest.raises(RequestError, match="opens the network, .* add --in-process"):
        plugins.build("explainer", "brinell.explainers.grad_cam:GradCAM", {})
