import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """The maker of runs with known answers."""
    spec = importlib.util.spec_from_file_location(
        "brinell_tests_synthetic", Path(__file__).with_name("synthetic.py")
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
