"""Run folders with known answers, written as the store lays them out.

run = write_run(tmp_path / "run", {"net": distances}, labels, [0.1, 0.2], ["cat", "dog"])
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from brinell.core.record import Records
from brinell.store.files import write_arrays
from brinell.store.rows import concatenate
from brinell.store.run import TABLE, save_clean
from brinell.store.run_manifest import stage_files


def from_analysis(name: str) -> ModuleType:
    """A module of tests/analysis, such as `synthetic` or `test_per_class_study`."""
    path = Path(__file__).parent / "analysis" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"brinell_tests_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_run(
    path: Path,
    breaks: dict[str, np.ndarray],
    labels: np.ndarray,
    eps: list[float],
    classes: list[str],
    **changes: Any,
) -> Path:
    """Write a run in which the stages break each sample at these distances.

    Args:
        path: the folder, which is new.
        breaks: by model (stages, samples) distances; 0 in the first row for a sample that is wrong
            untouched.
        labels: (samples,) true classes.
        eps: the budgets.
        classes: their names.
        changes: entries of the manifest.
    """
    synthetic = from_analysis("synthetic")
    rows = {
        model: synthetic.records(model, labels, eps, distances, classes=len(classes))
        for model, distances in breaks.items()
    }
    manifest = synthetic.manifest(list(breaks), eps, len(labels), classes, **changes)
    return write_rows(path, rows, manifest)


def write_rows(path: Path, rows: dict[str, Records], manifest: dict[str, Any]) -> Path:
    """Write the rows of each model with clean and adversarial inputs of every second sample."""
    synthetic, files = from_analysis("synthetic"), stage_files(manifest)
    path.mkdir(parents=True)
    shape, rng = tuple(manifest["data"]["domain"]["shape"]), np.random.default_rng(0)
    n = manifest["data"]["n"]
    clean = {i: rng.random(shape, dtype=np.float32) for i in range(0, n, 2)}
    parts = []
    for model, of_model in rows.items():
        save_clean(path, files[model, "clean"], clean)
        for stage in ("clean", *(stage["name"] for stage in manifest["stages"])):
            of_stage = synthetic.keep(of_model, of_model.attack == stage)
            parts.append(of_stage)
            fooled = of_stage.sample_id[of_stage.outcome == "broken"].tolist()
            arrays = {
                str(sample): (clean[sample] * 0.9).astype(np.float32)
                for sample in fooled
                if sample in clean
            }
            if arrays:
                write_arrays(path / "arrays" / f"{files[model, stage]}-0000.safetensors", arrays)
    TABLE.write(path, manifest, concatenate(parts))
    return path
