import numpy as np
import pytest
import torch

from _helpers import VECTOR, Recorder, plan_of, threshold
from _refusals import refused
from brinell.attacks.apgd import APGD
from brinell.attacks.pgd import PGD
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.model import Access
from brinell.engine import toml
from brinell.engine.attack_names import CASCADES, PRESETS
from brinell.engine.cascade import build_stages
from brinell.engine.plan import choose_device, make_plan
from brinell.engine.provenance import content_hash
from brinell.engine.request import Request

X = np.full((6, 2), 0.4, dtype=np.float32)
Y = np.array([0, 1, 0, 1, 0, 0])

ONLY_L1 = """
from dataclasses import dataclass
from typing import ClassVar
from brinell.core.model import Access

@dataclass(frozen=True, kw_only=True)
class OnlyImages:
    \"\"\"Works on images alone.\"\"\"
    access: ClassVar = Access.LABELS
    distances: ClassVar = frozenset({"linf"})
    domains: ClassVar = frozenset({"image"})
    family: ClassVar = "minimal"
    targeted: ClassVar = False

    def cost(self, classes):
        return 10 * classes, 0

    def __call__(self, ledger, batch, threat, rng):
        pass

class OnlyL1(OnlyImages):
    distances = frozenset({"l1"})
    domains = frozenset({"vector"})
"""


@pytest.fixture
def scratch(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(ONLY_L1)
    return file


def model(**settings):
    return Recorder(threshold(0.5), **settings)


# Stages


def test_presets():
    ce, dlr, bim = (build_stages((name,))[0].attack for name in ("apgd-ce", "apgd-dlr", "bim"))
    assert ce == APGD(loss="ce") and dlr == APGD(loss="dlr") and bim == PGD(random_start=False)
    assert set(Request().attack) <= set(PRESETS) | set(CASCADES)


def test_stages_that_make_no_sense(subtests):
    for specs, message in [
        ((), "no attack is named"),
        (("pgdd",), "there is no attack 'pgdd', did you mean 'pgd'"),
        (("apgd-se",), "did you mean 'apgd-ce'"),
        (("pgd?step=5",), "attack pgd has no option 'step', did you mean 'steps'"),
        (("pgd?steps=many",), "option steps of attack pgd is 'many'"),
        (("pgd?steps=0",), "attack pgd: steps is 0"),
        (("pgd?loss=mse",), "option loss of attack pgd is 'mse'"),
        (("pgd?steps",), "are not key=value pairs"),
        (("pgd", "fgsm", "pgd"), "attack pgd is named twice"),
        (("pgd:there",), "has a path 'there'"),
        ((":x",), "names nothing"),
    ]:
        with subtests.test(str((specs, message))):
            with pytest.raises(RequestError, match=message.replace("?", r"\?")):
                build_stages(specs)


# The plan


def test_no_attack_runs_in_the_plan():
    recorder = model()
    plan_of(recorder, X, Y)
    assert recorder.calls == []


def test_cost_at_most():
    """Every budget fought to the end: per run the attack's own cost and the bisection of nine
    levels.
    """
    plan = plan_of(model(), X, Y, eps="1/255:9/255:9", attack=("pgd?steps=10&restarts=2", "fgsm"))
    source = plan.models[0]
    assert plan.cost(source, plan.stages[0]) == (6 * 9 * (22 + 4), 6 * 9 * 20)
    assert plan.cost(source, plan.stages[1]) == (6 * 9 * (2 + 4), 6 * 9 * 1)
    capped = plan_of(
        model(), X, Y, eps="1/255:9/255:9", attack=("pgd?steps=10&restarts=2",), queries=5
    )
    assert capped.cost(capped.models[0], capped.stages[0])[0] <= 6 * 9 * (5 + 4)
    at_zero = plan_of(model(), X, Y, eps="0", attack=("pgd", "fmn"))
    assert [at_zero.cost(source, stage) for stage in at_zero.stages] == [(0, 0)] * 2


def test_misfits_are_listed_before_anything_is_computed(scratch):
    images, l1 = f"{scratch}:OnlyImages", f"{scratch}:OnlyL1"
    plan = plan_of(model(), X, Y, attack=(images, "fgsm", l1), eps="0.1,0.2")
    (source,) = plan.models
    assert source.skipped == {
        images: "it works on image inputs, not on a vector",
        l1: "it works in l1, not in linf",
    }
    assert plan.cost(source, plan.stages[0]) == (0, 0) and plan.cost(source, plan.stages[1])[0] > 0


def test_a_plan_without_a_single_attack_is_refused(scratch):
    with pytest.raises(
        RequestError, match="no attack can run on recorder.*it works on image inputs"
    ):
        plan_of(model(), X, Y, attack=(f"{scratch}:OnlyImages",))
    closed = model()
    closed.access = Access.LABELS
    with pytest.raises(RequestError, match="it needs gradients, and the model gives labels only"):
        plan_of(closed, X, Y, attack=("fgsm", "pgd"))
    with pytest.raises(
        RequestError,
        match=r"it works in embedding, l2, linf, not in l1\): add --norm linf or --norm l2",
    ):
        plan_of(model(), X, Y, norm="l1", attack=("pgd",))


def test_two_models_of_one_name():
    with pytest.raises(RequestError, check=refused("engine.plan.check_names")):
        plan_of((model(), model()), X, Y)
    assert [m.name for m in plan_of((model(), model(name="other")), X, Y).models] == [
        "recorder",
        "other",
    ]


def test_settings_out_of_range(subtests):
    for values, message in [
        ({"datta": "digits"}, "there is no setting 'datta', did you mean 'data'"),
        ({"samples": 0}, "samples is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"batch_size": 0}, "batch-size is 0"),
        ({"queries": 0}, "queries is 0"),
        ({"samples": "many"}, "samples is 'many'"),
    ]:
        with subtests.test(str((values, message))):
            with pytest.raises(RequestError, match=message):
                toml.parse_request(Request, values)


def test_requests_that_cannot_be_carried_out(subtests):
    for request_, message in [
        ({"norm": "l7"}, "there is no distance 'l7'"),
        ({"data": "digitz"}, "there is no dataset 'digitz', did you mean 'digits'"),
        ({"model": "digits-cmm"}, "there is no model 'digits-cmm', did you mean 'digits-cnn'"),
        ({"device": "xla"}, "device 'xla' cannot be used"),
        ({"eps": "-1"}, "is negative"),
        ({"data": "digits?spilt=test"}, "has no option 'spilt', did you mean 'split'"),
        ({"data": "npz:/nowhere.npz"}, "there is no file /nowhere.npz"),
    ]:
        with subtests.test(str((request_, message))):
            with pytest.raises(RequestError, match=message):
                make_plan(Request(**request_))


def test_device():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda")


def test_groups_hold_full_batches_within_memory():
    assert plan_of(model(), X, Y, batch_size=32).group_size == 128
    video = Domain(kind="video", shape=(3, 16, 112, 112))
    wide = Recorder(threshold(0.5), video)
    plan = plan_of(wide, np.full((2, *video.shape), 0.4, dtype=np.float32), [0, 0], batch_size=128)
    assert 1 <= plan.group_size * 4 * 3 * 16 * 112 * 112 <= 32 * 2**20


# The request as a file


@pytest.mark.parametrize(
    "request_",
    [
        Request(),
        Request(
            data='npz:a "quoted" näme.npz',
            model=("a", "torch:b\\c.py:net"),
            attack=("pgd?steps=3",),
            samples=5,
            queries=7,
            seed=9,
        ),
    ],
)
def test_toml_round_trip(tmp_path, request_):
    file = tmp_path / "run.toml"
    file.write_text(toml.dump(request_), encoding="utf-8")
    assert toml.parse_request(Request, toml.load(file)) == request_


def test_toml_that_cannot_be_read(tmp_path_factory, subtests):
    for content, message in [
        (b"data = ", "no TOML"),
        (b"\xff\xfe", "no TOML"),
        (None, "there is no"),
    ]:
        with subtests.test(str((content, message))):
            tmp_path = tmp_path_factory.mktemp("row")
            file = tmp_path / "run.toml"
            if content is not None:
                file.write_bytes(content)
            with pytest.raises(RequestError, match=message):
                toml.load(file)


def test_cells_name_their_content():
    digest = content_hash(a=1, b=[1, 2.5, "x"], c={"p": 1, "q": 2})
    assert digest == content_hash(c={"q": 2, "p": 1}, b=[1, 2.5, "x"], a=1) and len(digest) == 24
    assert (
        len(
            {digest, content_hash(a=1), content_hash(a="1"), content_hash(a=1.5), content_hash(b=1)}
        )
        == 5
    )
    with pytest.raises(ValueError, match="not JSON compliant"):
        content_hash(a=float("nan"))
    assert VECTOR == Domain(kind="vector", shape=(2,))
