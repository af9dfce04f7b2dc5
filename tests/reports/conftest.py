import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from brinell.store import parquet
from brinell.store.files import write_arrays
from brinell.store.run import LAYOUT, Run
from brinell.store.run_manifest import stage_files


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """The maker of runs with known answers."""
    spec = importlib.util.spec_from_file_location(
        "brinell_tests_synthetic", Path(__file__).parents[1] / "analysis" / "synthetic.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def make(synthetic, tmp_path):
    """Writes a run folder from the distances at which samples break, as the store lays it out."""

    def make(
        breaks: dict[str, np.ndarray],
        labels: np.ndarray,
        eps: list[float],
        classes: list[str],
        **changes,
    ) -> Path:
        stages = synthetic.TWO_STAGES
        manifest = synthetic.manifest(list(breaks), eps, len(labels), classes, **changes)
        run = Run(tmp_path / f"run-{len(list(tmp_path.iterdir()))}", manifest)
        (run.path / "records").mkdir(parents=True)
        shape = tuple(manifest["data"]["domain"]["shape"])
        rng = np.random.default_rng(0)
        clean = {i: rng.random(shape, dtype=np.float32) for i in range(0, len(labels), 2)}
        for model, distances in breaks.items():
            rows = synthetic.records(model, labels, eps, distances, classes=len(classes))
            run.save_clean(model, clean)
            for stage in ("clean", *stages):
                file = stage_files(manifest)[model, stage]
                parquet.write(
                    run.path / "records" / f"{file}.parquet",
                    synthetic.keep(rows, rows.attack == stage),
                )
                fooled = rows.sample_id[(rows.attack == stage) & (rows.outcome == "broken")]
                arrays = {
                    int(s): (clean[int(s)] * 0.9).astype(np.float32)
                    for s in fooled
                    if int(s) in clean
                }
                if arrays:
                    named = {str(sample): array for sample, array in arrays.items()}
                    write_arrays(run.path / "arrays" / f"{file}-0000.safetensors", named)
        LAYOUT.save(run.path, manifest)
        return run.path

    return make
