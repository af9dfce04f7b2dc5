"""Calls with arguments made at random: each gives a figure, or one `BrinellError` of one line, in
seconds.
"""

import inspect
import random
import signal
import time
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

import _hostile as hostile
import brinell
from brinell.core.errors import BrinellError

N = 12
SECONDS = 5
"""Processor time that a call may take beyond that of the same call with arguments that are
right."""
WITHOUT = {"review": "it waits for a person at a browser"}
X = torch.rand(N, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(N) % 3


def calls():
    """The calls of the package, by name."""
    names = [name for name in dir(brinell) if not name.startswith("_") and name not in WITHOUT]
    offered = {name: getattr(brinell, name) for name in names}
    return {
        name: call
        for name, call in offered.items()
        if callable(call) and not isinstance(call, type)
    }


def right(name, runs):
    """Arguments with which a call is right and short."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    in_memory = {"model": net, "data": (X, Y)}
    settings = {
        "attack": {"model": net, "x": X, "y": Y, "attack": "fgsm", "eps": 0.1},
        "audit": in_memory | {"eps": 0.1, "attack": "fgsm"},
        "benchmark": in_memory | {"steps": 4, "refine": 2, "patch": 4},
        "claim": {"run": runs[0]},
        "board": {"folder": runs[0]},
        "certify": in_memory | {"eps": 0.02, "attack": "fgsm", "method": "crown", "samples": 4},
        "compare": {"run": [runs[0], runs[1]]},
        "corrupt": in_memory | {"kind": "published-brightness", "severity": 1},
        "data": {"x": X, "y": Y},
        "doctor": {},
        "epsilon": {"data": (X, Y), "pairs": 20, "evidence": ()},
        "explain": in_memory | {"method": "gradient", "samples": 4, "steps": 2},
        "export": {"run": runs[0], "to": "csv"},
        "gate": {"run": runs[0], "robust": 0.1},
        "harden": in_memory
        | {
            "train": runs[2],
            "recipe": "plain",
            "eps": 0.1,
            "epochs": 1.0,
            "samples": 4,
            "attack": "fgsm",
        },
        "open": {"folder": runs[0]},
        "progress": {"run": runs[0]},
        "report": {"run": runs[0]},
        "sign": {"run": runs[1], "key": "no-key"},
        "train_agent": {
            "model": net,
            "data": runs[2],
            "steps": 2,
            "attack": "rlab?steps=4",
            "surrogates": 0,
        },
        "train_generator": {"data": runs[2], "steps": 2, "minutes": 0.01},
        "train_metric": {"data": runs[2], "steps": 2},
        "transfer": {"model": [net, net], "data": (X, Y), "eps": 0.1, "attack": "fgsm"},
        "unrestricted": in_memory | {"generator": runs[3], "steps": 2, "per_class": 1},
        "verify": {"run": runs[0]},
    }
    return settings[name]


MODEL = """import torch
def net():
    weight = torch.rand(3, 64, generator=torch.Generator().manual_seed(3))
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    network[1].weight.data = weight
    return network
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two small runs, further data, and a generator."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "model.py").write_text(MODEL)
    np.savez(folder / "data.npz", x=X.numpy(), y=Y.numpy())
    np.savez(folder / "train.npz", x=torch.rand(90, 1, 8, 8).numpy(), y=np.arange(90) % 3)
    for name in ("a", "b"):
        settings = {"eps": 0.1, "attack": "fgsm", "seed": ord(name), "out": folder / name}
        brinell.audit(f"torch:{folder / 'model.py'}:net", f"npz:{folder / 'data.npz'}", **settings)
    generator = folder / "generator.safetensors"
    brinell.train_generator(f"npz:{folder / 'train.npz'}", out=generator, steps=2)
    return [str(folder / "a"), str(folder / "b"), f"npz:{folder / 'train.npz'}", str(generator)]


def hostile_value(rng, parameter, arguments):
    """A value for a parameter: of its own kind mostly, otherwise of any."""
    name, text = parameter.name, str(parameter.annotation)
    if rng.random() < 0.2:
        return hostile.odd(rng)
    if name in ("model", "judge"):
        return hostile.model(rng)
    if name in ("data", "train", "test"):
        return hostile.inputs(rng, N)
    if name == "x":
        return hostile.array(rng, N)
    if name == "y" or (name == "targeted" and "Labels" in text):
        return hostile.labels(rng, N)
    if name in ("mean", "std", "eps", "norm", "bounds", "budgets", "preprocessing"):
        kinds = (
            hostile.odd,
            lambda rng: hostile.array(rng, N, (rng.choice([1, 3, N]),)),
            numbers_of,
            settings_of,
        )
        return rng.choice(kinds)(rng)
    if "int" in text or "float" in text:
        return rng.choice(hostile.NUMBERS)
    return rng.choice([hostile.odd(rng), rng.choice(hostile.TEXTS), rng.choice(hostile.NUMBERS)])


def numbers_of(rng):
    """Numbers in a tuple."""
    return tuple(rng.choice(hostile.NUMBERS) for _ in range(rng.randrange(4)))


def settings_of(rng):
    """A mapping as a preprocessing is."""
    return {
        rng.choice(["mean", "std", "axis", "flip_axis", "x"]): hostile.odd(rng) for _ in range(2)
    }


class TooLong(KeyboardInterrupt):
    """The call takes far too long; nothing below the test may swallow it."""


@contextmanager
def limit(seconds):
    """End the work inside after so much time, in which the processor may be busy with others."""

    def stop(number, frame):
        raise TooLong(f"more than {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def problem_of(call, arguments, seconds):
    """What is wrong with how a call takes its arguments; None if nothing is."""
    start = time.process_time()
    try:
        with limit(4 * seconds):
            call(**arguments)
    except BrinellError as error:
        line = str(error)
        if "\n" in line or not line.strip():
            return f"the error has not one line: {line!r}"
    except BaseException as error:
        return (
            f"{type(error).__name__}: "
            f"{str(error)[:300] if not isinstance(error, KeyError) else 'key'} in "
            f"{where(error)}"
        )
    spent = time.process_time() - start
    return f"it took {spent:.1f} s" if spent > seconds else None


def where(error):
    """The last place in the package that an error came through."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if "brinell" in code.co_filename:
            places.append(
                f"{code.co_filename.rpartition('brinell/')[2]}:{trace.tb_lineno} {code.co_name}"
            )
        trace = trace.tb_next
    return " < ".join(places[::-1][:3])


@pytest.fixture(scope="module")
def usual_seconds(runs, tmp_path_factory):
    """The time that a call takes with arguments that are right."""
    seconds = {}

    def measure(name, call):
        if name not in seconds:
            arguments = right(name, runs) | _place(name, call, tmp_path_factory)
            start = time.process_time()
            try:
                call(**arguments)
            except BrinellError:
                assert name == "sign", f"the call of {name} is not right"
            seconds[name] = time.process_time() - start
        return seconds[name]

    return measure


def _place(name, call, tmp_path_factory):
    """A fresh place for the results, where a call leaves any."""
    if "out" not in inspect.signature(call).parameters or name == "gate":  # it judges a run here
        return {}
    file = f"result{'.safetensors' if name.startswith('train') else ''}"
    return {"out": tmp_path_factory.mktemp("out") / file}


@pytest.fixture
def closed_input(monkeypatch, tmp_path):
    """Standard input that nobody may read, in a folder of its own."""

    class Closed:
        def isatty(self):
            return False

        def __getattr__(self, name):
            raise AssertionError("standard input was read")

    monkeypatch.setattr("sys.stdin", Closed())
    monkeypatch.chdir(tmp_path)


def fuzz(seed, draws, runs, usual_seconds, tmp_path_factory):
    """Draw calls and arguments; return what went wrong."""
    problems, names = [], list(calls())
    for number in range(draws):
        rng = random.Random(f"{seed} {number}")
        name = (
            names[number % len(names)]
            if number < len(names)
            else rng.choice(["audit", "attack", "data", *names])
        )
        call = calls()[name]
        parameters = inspect.signature(call).parameters
        arguments = right(name, runs) | _place(name, call, tmp_path_factory)
        subjects = [
            parameters[key] for key in ("model", "data", "x", "y", "run") if key in parameters
        ]
        chosen = [rng.choice(subjects)] if subjects and rng.random() < 0.6 else []
        if not chosen or rng.random() < 0.4:
            chosen += rng.sample(
                list(parameters.values()), min(len(parameters), rng.choice([1, 1, 1, 2, 3]))
            )
        arguments |= {
            parameter.name: hostile_value(rng, parameter, arguments) for parameter in chosen
        }
        texts = {
            parameter.name: hostile.describe(arguments[parameter.name]) for parameter in chosen
        }
        if problem := problem_of(call, arguments, usual_seconds(name, call) + SECONDS):
            problems.append(f"{seed}-{number} brinell.{name} with {texts}: {problem}")
    return problems


@pytest.mark.parametrize(
    ("seed", "draws"),
    [pytest.param(1, 40, marks=pytest.mark.slow), pytest.param(2, 500, marks=pytest.mark.nightly)],
)
@pytest.mark.filterwarnings("ignore")
def test_hostile_arguments_give_a_figure_or_one_line(
    seed, draws, runs, usual_seconds, tmp_path_factory, closed_input
):
    problems = fuzz(seed, draws, runs, usual_seconds, tmp_path_factory)
    assert not problems, f"{len(problems)} of {draws}:\n" + "\n".join(problems)
