"""Surrogates of a policy file: what is kept, what it holds, that episodes follow it, and that other
data is refused.
"""

import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from _helpers import Recorder, batch_of, threat_of
from _refusals import refused
from brinell import plugins
from brinell.cli import run as main
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.ledger import Ledger
from brinell.rlab.agent import Agent, load
from brinell.rlab.networks import (
    FORMS,
    LIMIT,
    NetworkForm,
    SmallNetwork,
    build,
    fitting,
    initialised,
    size,
)
from brinell.rlab.prior import Prior
from brinell.rlab.train import correlations, held_out, set_aside
from brinell.store.run import Run
from brinell.training.surrogates import balanced

DIGITS = Domain(kind="image", shape=(1, 8, 8), levels=17)


def network(domain=DIGITS, classes=10, seed=0, names=(), form=None):
    form = form or NetworkForm(width=4, kernel=3)
    return SmallNetwork(initialised(domain, classes, form, seed), form, domain, classes, names)


def agent(*networks, domain=DIGITS):
    return Agent(prior=Prior(domain.shape[0]), domain=domain, surrogates=networks)


def test_every_form_fits_its_data_and_the_limit(subtests):
    for domain in [
        Domain(kind="signal", shape=(2, 187)),
        Domain(kind="image", shape=(3, 224, 224)),
        DIGITS,
        Domain(kind="video", shape=(1, 8, 40, 40)),
        Domain(kind="vector", shape=(30,)),
        Domain(kind="vector", shape=(50_000,)),
    ]:
        with subtests.test(domain=domain):
            for form in FORMS[domain.kind]:
                narrowed = fitting(domain, 7, form)
                assert narrowed.width <= form.width and size(domain, 7, narrowed) <= LIMIT
            x = torch.rand(2, *domain.shape)
            assert build(domain, 7, narrowed).eval()(x).shape == (2, 7)
            assert fitting(Domain(kind="vector", shape=(10**6,)), 7, form) is None


def test_a_file_brings_back_the_networks_bit_by_bit(tmp_path):
    first, second = (
        network(seed=1, names=list("abcdefghij")),
        network(seed=2, form=NetworkForm(width=6, kernel=5)),
    )
    path = tmp_path / "agent.safetensors"
    agent(first, second).save(path)
    loaded = load(path)
    assert [surrogate.digest() for surrogate in loaded.surrogates] == [
        first.digest(),
        second.digest(),
    ]
    assert loaded.surrogates[0].info.class_names == tuple("abcdefghij") and loaded.domain == DIGITS
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(loaded.surrogates[0].predict(x), first.predict(x))
    digests = {plugins.build("attack", "rlab", {"policy": str(path)}).digest()}
    agent(first).save(path)
    assert plugins.build("attack", "rlab", {"policy": str(path)}).digest() not in digests


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (Domain(kind="signal", shape=(1, 64)), "learned on image data, and this is signal"),
        (
            Domain(kind="image", shape=(1, 16, 16)),
            "surrogates for inputs of 1x8x8, and these have 1x16x16",
        ),
        (
            Domain(kind="image", shape=(1, 8, 8), high=255.0),
            "surrogates for values 0.0 to 1.0, and these are 0.0 to 255.0",
        ),
    ],
)
def test_other_data_is_refused(tmp_path, domain, message):
    path = tmp_path / "agent.safetensors"
    agent(network()).save(path)
    attack = plugins.build("attack", "rlab", {"policy": str(path)})
    with pytest.raises(
        RequestError, match=f"{message}: train one on this data by brinell train agent"
    ):
        attack.check(domain)
    attack.check(DIGITS)


def test_other_classes_are_refused_in_one_line(tmp_path, capsys):
    words = ["audit", "--samples", "2", "--norm", "l2", "--eps", "1", "--attack"]
    for networks, message in (
        (network(classes=3), "tells 3 classes apart, and digits-cnn 10"),
        (
            network(names=[f"class {i}" for i in range(10)]),
            "class 5, cla...' apart, and digits-test has '0, 1, 2, 3, 4, 5, 6, 7, 8, 9'",
        ),
    ):
        path = tmp_path / "agent.safetensors"
        agent(networks).save(path)
        assert main([*words, f"rlab?policy={path}", "--out", str(tmp_path / "run")]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1 and message in lines[0], lines
        assert not (tmp_path / "run").exists()


def test_an_oracle_refuses_surrogates_of_other_classes():
    model = Recorder(lambda x: torch.zeros(len(x), 2), DIGITS, classes=2)
    batch = batch_of(torch.rand(1, 1, 8, 8), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(RequestError, check=refused("core.ledger.Ledger._check_surrogate")):
        Ledger(model, batch, threat_of(1.0, "l2", DIGITS)).oracle().follow([network()])


def test_passes_of_brought_surrogates_are_counted_apart():
    """Behind a surrogate of the run come those of the attack, and each pass counts."""
    guide, brought = network(seed=1), network(seed=2)
    model = Recorder(lambda x: x.flatten(1)[:, :10], DIGITS, classes=10)
    batch = batch_of(torch.rand(2, 1, 8, 8), torch.zeros(2, dtype=torch.int64))
    ledger = Ledger(model, batch, threat_of(1.0, "l2", DIGITS, n=2), surrogates=(guide,))
    oracle = ledger.oracle().follow([brought])
    weights = torch.eye(10)[:2]
    slopes = oracle.slopes(batch.ids, batch.x, weights)
    assert oracle.surrogates == 2 and model.queries == 0
    assert ledger.costs.surrogate_passes.tolist() == [2, 2]
    x = batch.x.clone().requires_grad_()
    (expected,) = torch.autograd.grad((brought.predict(x) * weights).sum(), x)
    assert torch.allclose(slopes[:, 1], expected)


def test_only_what_explains_the_answers_is_kept():
    rng = torch.Generator().manual_seed(0)
    effect = torch.randn(60, 16, generator=rng)
    slopes = torch.stack(
        [effect + torch.randn(60, 16, generator=rng), torch.randn(60, 16, generator=rng), -effect],
        2,
    )
    right, unrelated, opposite = zip(
        *(column.tolist() for column in correlations(effect, slopes)), strict=True
    )
    assert right[1] > 0 and right[0] == pytest.approx(2**-0.5, abs=0.05)
    assert unrelated[1] <= 0 and abs(unrelated[0]) < 0.1
    assert opposite[1] <= 0 and opposite[0] == pytest.approx(-1)
    assert correlations(effect[:1], slopes[:1])[1].tolist() == [-1] * 3, "one input proves nothing"


def test_inputs_set_aside_are_not_those_of_the_validation(subtests):
    for count in [8, 20, 800]:
        with subtests.test(count=count):
            rows = set_aside(count)
            assert rows.stop == count - held_out(count) and len(rows) == count // 10


def test_rare_classes_are_drawn_by_the_root_of_their_share():
    labels = np.repeat([0, 1, 4], [900, 90, 10])
    sample = labels[balanced(labels, 5000, np.random.default_rng(0))]
    shares = np.sqrt([900, 90, 10]) / np.sqrt([900, 90, 10]).sum()
    assert np.bincount(sample)[[0, 1, 4]] == pytest.approx(5000 * shares, abs=1)
    assert (
        len(
            set(balanced(labels, 1000, np.random.default_rng(0)).tolist())
            & set(np.flatnonzero(labels == 1))
        )
        == 90
    )


@pytest.mark.slow
@pytest.mark.nightly
def test_the_printed_command_works_as_pasted(tmp_path, capsys, monkeypatch):
    """Training says what the file is worth; its command names distortions, patches and data; the
    run names the networks.
    """
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "agent",
        "--out",
        "my agent.safetensors",
        "--samples",
        "200",
        "--steps",
        "200",
    ]
    attack = "rlab?distortions=gaussian-noise+dead-pixel&patch=2&draws=4&steps=30"
    assert main([*words, "--attack", attack, "--surrogates", "2"]) == 0
    out = capsys.readouterr().out
    assert "and follows 2 surrogates" in " ".join(out.split()) and all(
        name in out for name in ("greedy", "default", "Square")
    )
    (line,) = [line for line in out.splitlines() if "brinell audit" in line]
    command = shlex.split(line[line.index("brinell audit") :])
    assert (
        command[:2] == ["brinell", "audit"] and f"{attack}&policy=my agent.safetensors" in command
    )
    assert "digits" in command and "digits?split=train" not in command, (
        "the samples that it did not learn on"
    )
    assert main([*command[1:], "--samples", "6", "--out", "run"]) == 0
    capsys.readouterr()
    run = Run.open(Path("run"))
    stored, records = run.manifest["surrogates"], run.rows
    assert [entry["name"] for entry in stored] == [
        f"network {number} of my agent.safetensors" for number in (1, 2)
    ]
    passes = records.surrogate_passes[records.attack != "clean"]
    assert passes.sum() > 0 and all(passes % 2 == 0)
    assert "with 2 surrogates from its file" in (tmp_path / "run" / "report.html").read_text()
    assert main(["verify", "run"]) == 0
