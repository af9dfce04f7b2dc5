"""A user's file imports the modules beside it, and its digest covers them."""

import random
import sys
from pathlib import Path

import pytest
import torch

from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.user_files import hash_code, import_file, module_name
from brinell.models.torch import TorchModule

FORMS = {
    "import layers\ndef value(): return layers.VALUE": "layers.py",
    "from layers import *\ndef value(): return VALUE": "layers.py",
    "import layers.conv as c\ndef value(): return c.VALUE": "layers/conv.py",
    "from layers.conv import VALUE\ndef value(): return VALUE": "layers/conv.py",
    (
        "import importlib\nVALUE = importlib.import_module('layers').VALUE\ndef "
        "value(): return VALUE"
    ): "layers.py",
    "import sys, os\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))\n"
    "import layers\ndef value(): return layers.VALUE": "lib/layers.py",
}


def test_two_files_import_their_own_module_of_one_name(tmp_path: Path) -> None:
    path, values = list(sys.path), random.Random(0).sample(range(1000), 2)
    for number, (text, sibling) in enumerate(FORMS.items()):
        files = [tmp_path / f"{number}{place}" / "mine.py" for place in "ab"]
        for file, value in zip(files, values, strict=True):
            (file.parent / sibling).parent.mkdir(parents=True)
            (file.parent / sibling).write_text(f"VALUE = {value}\n")
            file.write_text(text)
        scopes = [import_file(file) for file in files]
        assert [scope.value() for scope in scopes] == values, text
        assert [scope.__name__ for scope in scopes] == [module_name(file) for file in files]
    assert sys.path == path


def test_a_factory_imports_the_modules_beside_its_own_file(tmp_path: Path) -> None:
    domain, models = Domain(kind="vector", shape=(4,)), []
    for width in (2, 3):
        folder = tmp_path / str(width)
        folder.mkdir()
        (folder / "layers.py").write_text(
            f"from torch import nn\ndef last(): return nn.Linear(4, {width})\n"
        )
        (folder / "mine.py").write_text("def net():\n    import layers\n    return layers.last()\n")
        models.append(TorchModule(path=f"{folder / 'mine.py'}:net")(domain))
    assert [model.classes for model in models] == [2, 3]


def test_a_sibling_runs_anew_for_each_opening(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import state\ndef count():\n    state.calls.append(1)\n    return len(state.calls)\n"
    )
    (tmp_path / "state.py").write_text("calls = []\n")
    assert [import_file(file).count() for _ in range(2)] == [1, 1]


def test_a_missing_module_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    for text in (
        "import nowhere_at_all\ndef net(): pass\n",
        "def net():\n    import nowhere_at_all.part\n",
    ):
        file.write_text(text)
        with pytest.raises(
            RequestError,
            match="pip install nowhere_at_all, or put nowhere_at_all.py into that folder",
        ):
            TorchModule(path=f"{file}:net")(Domain(kind="vector", shape=(4,)))


def test_the_digest_of_a_model_covers_the_files_beside_it(tmp_path: Path) -> None:
    file, ops = tmp_path / "mine.py", tmp_path / "pkg" / "ops.py"
    file.write_text(
        "from torch import nn\nimport layers\ndef net():\n    return "
        "nn.Sequential(nn.Flatten(), layers.Block())\n"
    )
    (tmp_path / "layers.py").write_text(
        "import torch\nfrom torch import nn\nfrom pkg import ops\nclass Block(nn.Module):\n"
        "    def forward(self, x):\n        return ops.scale(x)\n"
    )
    ops.parent.mkdir()
    (tmp_path / "unrelated.py").write_text("a = 1\n")
    ops.write_text("def scale(x):\n    return 2 * x\n")
    domain = Domain(kind="vector", shape=(4,))
    model = TorchModule(path=f"{file}:net")(domain)
    assert torch.equal(model.predict(torch.ones(2, 4)), 2 * torch.ones(2, 4))
    (tmp_path / "unrelated.py").write_text("a = 2\n")
    assert TorchModule(path=f"{file}:net")(domain).digest() == model.digest()
    ops.write_text("def scale(x):\n    return 3.5 * x  # another\n")
    changed = TorchModule(path=f"{file}:net")(domain)
    assert changed.digest() != model.digest()
    assert torch.equal(changed.predict(torch.ones(2, 4)), 3.5 * torch.ones(2, 4))


ATTACK = """
from dataclasses import dataclass
{line}

@dataclass(frozen=True, kw_only=True)
class Shift:
    \"\"\"A shift.\"\"\"
    domains = frozenset({{"image", "vector"}})
    access = 1

    def __call__(self, x, severity, rng, draw):
        return x + offset(x)

    def draws(self, shape):
        return 1
"""


def test_a_plugin_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for place in (tmp_path, tmp_path / "lib"):
        (place / "helper.py").write_text("def offset(x):\n    return 0.25\n")
    file = tmp_path / "shift.py"
    file.write_text(ATTACK.format(line="from lib.helper import offset\nfrom helper import offset"))
    plugin = plugins.load("distortion", f"{file}:Shift")
    assert plugins.source_of(plugin) == hash_code(file, 8)
