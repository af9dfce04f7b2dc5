"""What a command imports before its first pass: nothing that takes long and is needed later, or
never.
"""

import subprocess
import sys

import pytest

HEAVY = {
    "sympy",
    "pandas",
    "sklearn",
    "scipy",
    "matplotlib",
    "IPython",
    "ray",
    "timm",
    "torchvision",
    "torch._dynamo",
}
FIRST_PASS = """
import brinell.engine.audit, brinell.studies.audit.run
from brinell.engine.plan import make_plan
from brinell.engine.request import Request
from brinell.engine.toml import parse_request
plan = make_plan(parse_request(Request, {"data": "digits", "model": MODEL, "samples": 4, "eps": "0.1"}))
plan.models[0].open().predict(plan.dataset.load(plan.ids))
"""
FIT = """
from brinell.datasets.digits import Digits
from brinell.engine.fit import fit_data
from brinell.engine.plan import model_opener
import torch
data = Digits()()
assert fit_data(model_opener(MODEL, data)(), data, torch.device("cpu"))[0].forms
"""
HELP = """
from brinell.cli import run
assert run(["--help"]) == 0
"""
NET = (
    "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
)


@pytest.mark.slow
def test_no_heavy_library_is_imported_before_the_first_pass(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    model = f"MODEL = {str(tmp_path / 'net.py:net')!r}"
    for code, heavy in (
        (f"{model}\n{FIRST_PASS}", HEAVY),
        (f"{model}\n{FIT}", HEAVY - {"sklearn", "scipy"}),  # which the digits are from
        (HELP, HEAVY | {"torch", "numpy", "pyarrow"}),
    ):
        ending = f"import sys; print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
        done = subprocess.run(
            [sys.executable, "-c", f"{code}\n{ending}"], capture_output=True, text=True, check=False
        )
        assert done.stderr.splitlines()[-1] == "[]", done.stderr
