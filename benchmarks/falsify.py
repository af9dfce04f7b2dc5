"""Queries of robustness about the public ONNX networks of the shared data, answered by brinell falsify.

    python benchmarks/falsify.py [--images 4] [--timeout 10] [--bound crown]

For each network the first test images that it gets right, at two budgets in Linf; a query asks for an input of another class.
This file asks every counterexample again in ONNX Runtime and compares it with the query. Networks: those in BRINELL_SHARED.
"""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import measure
import numpy as np
import onnxruntime

import brinell

MEAN, STD = (np.array(values)[:, None, None] for values in ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)))
CASES = {
    "mnist-net_256x4": (0.02, 0.05),
    "mnist_relu_9_200": (0.015, 0.03),
    "resnet_2b": (2 / 255, 8 / 255),
    "vit_pgd_2_3_16": (1 / 255, 4 / 255),
    "vit_ibp_3_3_8": (1 / 255, 4 / 255),
}


def images(name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], Any, Any]:
    """Test images in [0, 1] with the channels first, labels, and the mean and deviation that the network expects."""
    mnist = name.startswith("mnist")
    with np.load(measure.SHARED / ("mnist/mnist_test.npz" if mnist else "cifar10/cifar10_test.npz")) as arrays:
        x, y = arrays["images"][:200] / 255.0, arrays["labels"][:200]
    return (x[:, None], y, 0.0, 1.0) if mnist else (x.transpose(0, 3, 1, 2), y, MEAN, STD)


def write_query(path: Path, low: np.ndarray[Any, Any], high: np.ndarray[Any, Any], label: int, classes: int) -> None:
    """A query for an input in a box that gets another class."""
    lines = [f"(declare-const X_{k} Real)" for k in range(len(low))] + [f"(declare-const Y_{k} Real)" for k in range(classes)]
    for k, (least, most) in enumerate(zip(low, high, strict=True)):
        lines += [f"(assert (>= X_{k} {least:.9f}))", f"(assert (<= X_{k} {most:.9f}))"]
    rivals = " ".join(f"(and (>= Y_{k} Y_{label}))" for k in range(classes) if k != label)
    path.write_text("\n".join([*lines, f"(assert (or {rivals}))"]))


def main() -> None:
    """Print a row for each network and budget."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=10.0)
    parser.add_argument("--bound", default="crown")
    arguments = parser.parse_args()
    print("| network | eps | queries | sat, all confirmed | unsat | unknown | processor s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, budgets in CASES.items():
        file = measure.SHARED / "onnx" / f"{name}.onnx"
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        entry = session.get_inputs()[0]
        shape = (1, *entry.shape[1:])
        x, y, mean, std = images(name)

        def answer(value: np.ndarray[Any, Any], shape: Any = shape, session: Any = session, entry: Any = entry) -> Any:
            """Outputs of ONNX Runtime."""
            return session.run(None, {entry.name: value.astype(np.float32).reshape(shape)})[0].ravel()

        right = [k for k in range(len(x)) if int(answer((x[k] - mean) / std).argmax()) == int(y[k])][: arguments.images]
        for eps in budgets:
            verdicts, start = Counter[str](), time.process_time()
            for k in right:
                with tempfile.TemporaryDirectory() as folder:
                    low, high = (((np.clip(x[k] + sign * eps, 0, 1) - mean) / std).ravel() for sign in (-1, 1))
                    query = Path(folder) / "query.vnnlib"
                    write_query(query, low, high, int(y[k]), 10)
                    result = brinell.falsify(str(query), network=str(file), timeout=arguments.timeout, bound=arguments.bound)
                verdicts[result.verdict] += 1
                if result.verdict == "sat":
                    values = np.array(list(result.x.values()))
                    scores = answer(values)
                    if not ((values >= low - 1e-8) & (values <= high + 1e-8)).all() or scores.argmax() == y[k]:
                        raise SystemExit(f"{name}: the counterexample of image {k} at {eps:.4g} is none")
            counts = " | ".join(str(verdicts[verdict]) for verdict in ("sat", "unsat", "unknown"))
            print(f"| {name} | {eps:.4f} | {len(right)} | {counts} | {time.process_time() - start:.0f} |", flush=True)


if __name__ == "__main__":
    main()
