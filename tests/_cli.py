"""The audit that tests of the command line repeat, and ways to spoil what it wrote."""

import json

EPS = "0,0.05,0.1,0.2"
ATTACKS = ["--attack", "fgsm", "--attack", "pgd?steps=3"]


def audit_arguments(work, out, *options, model="parabola", data="data.npz"):
    models = [argument for name in model.split() for argument in ("--model", f"torch:{work / 'model.py'}:{name}")]
    return ["audit", "--data", f"npz:{work / data}", *models, "--eps", EPS, *ATTACKS, "--out", str(out), *options]


def part_of(copy, folder, attack="fgsm"):
    manifest = json.loads((copy / "manifest.json").read_text())
    (stage,) = (stage for stage in manifest["stages"] if stage["name"] == attack)
    (cell,) = stage["cells"].values()
    return next((copy / folder).glob(f"part-{cell}*"))


def truncate(file):
    file.write_bytes(file.read_bytes()[:-7])
