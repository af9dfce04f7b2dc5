"""Looks for inputs that contradict a proof: proofs at all budgets, above those too at which an attack succeeds.

    python benchmarks/contradictions.py [--subjects cnn_wide_kw ...] [--samples 20] [--method crown]

brinell certify proves nothing where a counterexample is known, so it cannot contradict itself. Here both sides try every budget:
nine in each norm, from a quarter of the smallest interesting one to four times the largest. The exit code is 1
if an attacked input lies within a proven ball. The data and the weights are those in BRINELL_SHARED.
"""

import argparse
import sys
import time
from typing import Any

import measure
import numpy as np
import torch

import brinell
from brinell import plugins
from brinell.bounds._trace import trace
from brinell.engine.sources import open_data
from brinell.studies.certify.proofs import Proofs, Prover

BUDGETS = {"linf": (1 / 1020, 0.2), "l2": (0.02, 4.0)}
"""Smallest and largest budget by norm."""
SUBJECTS = ("cnn_wide_kw", "cnn4_pgd", "lenet5_clean", "lenet5_advtrained", "resnet2b", "resnet4b", "captum_cnn", "resnet20")
ATTACKS = ["apgd?steps=20", "apgd-t?steps=20"]


def main() -> None:
    """Print a row for each network and norm."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subjects", nargs="+", default=SUBJECTS)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--method", default="crown")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    name, _, options = plugins.parse(arguments.method)
    method = plugins.build("bound", name, options)
    print("| network | norm | proven | broken | neither | contradictions | processor s |\n|---|---|---|---|---|---|---|")
    contradictions = 0
    for subject_name in arguments.subjects:
        subject = measure.subject(subject_name)
        net = subject.module()
        data = open_data(subject.data_spec)
        x, y = data.load(range(arguments.samples)), torch.as_tensor(data.labels())[: arguments.samples].long()
        with torch.no_grad():
            right = net(x).argmax(1) == y
        x, y = x[right], y[right]
        for norm, ends in BUDGETS.items():
            start = time.process_time()
            levels = np.geomspace(*ends, 9).tolist()
            proofs = Proofs.none(len(x))
            limit = torch.full((len(x),), len(levels), dtype=torch.int64)
            proofs.extend(Prover.of(trace(net, x[:8]), subject.domain, norm), name, method, x, y, levels, limit)
            broken = torch.stack([attacked(net, x, y, eps, norm) for eps in levels], 1)
            proven = torch.arange(len(levels)) <= proofs.level[:, None]
            both = int((proven & broken).sum())
            contradictions += both
            counts = (int(proven.sum()), int(broken.sum()), int((~proven & ~broken).sum()), both)
            print(f"| {subject.name} | {norm} | {' | '.join(map(str, counts))} | {time.process_time() - start:.0f} |", flush=True)
    sys.exit(contradictions > 0)


def attacked(net: Any, x: torch.Tensor, y: torch.Tensor, eps: float, norm: str) -> torch.Tensor:
    """(n,) bool: broken by an attack within a budget."""
    result: Any = brinell.attack(net, x, y, ATTACKS, eps=eps, norm="linf" if norm == "linf" else "l2")
    success: torch.Tensor = result.success
    return success


if __name__ == "__main__":
    main()
