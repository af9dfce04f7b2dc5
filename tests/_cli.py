"""The audit that tests of the command line repeat, and ways to spoil what it wrote."""

import json

from brinell.store.run_manifest import stage_files

EPS = "0,0.05,0.1,0.2"
ATTACKS = ["--attack", "fgsm", "--attack", "pgd?steps=3"]


def audit_arguments(work, out, *options, model="parabola", data="data.npz"):
    models = [
        argument
        for name in model.split()
        for argument in ("--model", f"torch:{work / 'model.py'}:{name}")
    ]
    return [
        "audit",
        "--data",
        f"npz:{work / data}",
        *models,
        "--eps",
        EPS,
        *ATTACKS,
        "--out",
        str(out),
        *options,
    ]


def arrays_of(copy, attack="fgsm"):
    """The first file of the arrays of an attack on the first model."""
    manifest = json.loads((copy / "manifest.json").read_text())
    name = stage_files(manifest)[manifest["models"][0]["name"], attack]
    return next((copy / "arrays").glob(f"{name}*"))


def truncate(file):
    file.write_bytes(file.read_bytes()[:-7])
