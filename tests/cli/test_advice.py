"""A command line that means nothing is refused with the words to type, and these are accepted."""

import functools
import re
import shlex

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from _refusals import refused
from brinell.cli import command_line, run
from brinell.cli.advice import Line, check_verb
from brinell.core import gpu
from brinell.core.errors import RequestError, Spelling, spell
from brinell.core.numbers import NumberError, parse_decimal, parse_whole
from brinell.engine.eps_grid import parse_eps
from brinell.engine.toml import parse_request
from brinell.studies import register
from brinell.studies.kit import Call

REPLACED = {
    # A command line, and the words that it should have in place of its options.
    "audit --eps 2/255 4/255": "--eps 2/255,4/255",
    "audit --eps .03 .06 --samples 3": "--eps .03,.06",
    "audit --eps '1/255; 2/255'": "--eps 1/255,2/255",
    "audit --eps '[1/255, 2/255]'": "--eps 1/255,2/255",
    "audit --eps 1/255..8/255": "--eps 1/255:8/255:9",
    "audit --eps 0.031.5": "--eps 0.0315",
    "audit --eps 5%": "--eps 0.05",
    "audit --eps 5 percent": "--eps 0.05",
    "audit --attack pgd,apgd-ce": "--attack pgd --attack apgd-ce",
    "audit --attack pgd apgd-ce": "--attack pgd --attack apgd-ce",
    "audit --attack pgd?steps=5,apgd-ce": "--attack pgd?steps=5 --attack apgd-ce",
    "audit --weights d.pt": "--model model.py:FACTORY?weights=d.pt",
    "audit --checkpoint d.pt --model model.py:net": "--model model.py:net?weights=d.pt",
    "audit --steps 40 --attack pgd?restarts=2": "--attack pgd?restarts=2&steps=40",
    "audit --bounds 0,1": "--data FILE.npz?low=0&high=1",
    "audit --data x.npz --clip-values 0:255": "--data x.npz?low=0&high=255",
    "audit --num-steps 40": "--attack pgd?steps=40",
    "audit --samples 40%": "--samples 400",
    "audit --samples 1,000": "--samples 1000",
    "audit --batch-size 1k": "--batch-size 1000",
    "audit --device gpu": "--device cuda",
    "audit --device GPU:1": "--device cuda:1",
    "audit --gpu": "--device cuda",
    "audit --pgd": "--attack pgd",
    "audit -eps 0.1": "--eps 0.1",
    "audit —eps 0.1": "--eps",
    "audit eps=8/255": "--eps 8/255",
    "audit eps 8/255": "--eps 8/255",
    "audit --batch_size 32": "--batch-size 32",
    "audit --epsilon 8/255": "--eps 8/255",
    "audit --eps --samples 3": "--eps 8/255",
    "audit d.npz": "--data d.npz",
    "audit model.py:net": "--model model.py:net",
    "gate RUN --robust 0,5": "--robust 0.5",
    "corrupt --severity 1,2": "--severity 1 --severity 2",
    "corrupt --severity 1 2": "--severity 1 --severity 2",
    "explain --method grad-cam,ig": "--method grad-cam --method integrated-gradients",
    "harden --recipe pgd,distortions": "--recipe pgd+distortions",
}
ACCEPTED = {
    "audit --samples 1e2": ("samples", 100),
    "audit --samples all": ("samples", "all"),
    "audit --samples 1_000": ("samples", 1000),
    "gate RUN --robust 50%": ("robust", 0.5),
    "harden --eps 8/255 --epochs 3/2": ("epochs", 1.5),
}
FIRST_WORDS = {
    "attack": "audit",
    "help": "write brinell --help",
    "help audit": "write brinell audit --help",
    "model.py:net": "write brinell audit --model model.py:net",
    "d.npz": "write brinell audit --data d.npz",
    "run.toml": "write brinell audit run.toml",
    "--eps 8/255": "write brinell audit --eps 8/255",
    "--data d.npz audit": "write brinell audit --data d.npz",
}


@functools.cache
def parameters(verb):
    return get_command(command_line(verb)).commands[verb].params


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", x=np.zeros((2, 1, 8, 8)), y=np.arange(2))


def read(words):
    """The request that a command line makes."""
    verb, *words = words
    study = register.load(verb)
    line = Line(study, parameters(verb))
    line.check(words)
    fields = study.request.model_fields
    values = {name.removeprefix("--").replace("-", "_"): tuple(texts) for name, texts in line.values.items()}
    values = {name: texts if str(fields[name].annotation).startswith("tuple") else texts[0] for name, texts in values.items()}
    request = parse_request(study.request, values | dict(zip(study.positional, line.arguments, strict=False)))
    parse_eps(getattr(request, "eps", None) or "0")
    return request


def test_a_refusal_names_the_words_to_type_and_these_are_accepted(tmp_path_factory, monkeypatch, subtests):
    for line in REPLACED:
        with subtests.test(line=line):
            tmp_path = tmp_path_factory.mktemp("case")
            monkeypatch.setattr(gpu, "DRIVERS", (tmp_path,))
            words = shlex.split(line)
            with pytest.raises(RequestError) as error:
                read(words)
            advice = spell(error.value.line, Spelling.TERMINAL)
            assert REPLACED[line] in advice.replace("'", ""), advice
            if REPLACED[line] != "--eps":
                read([words[0], *(["RUN"] if "RUN" in words else []), *shlex.split(REPLACED[line])])


def test_a_value_with_one_reading_is_read(subtests):
    for line in ACCEPTED:
        with subtests.test(line=line):
            setting, value = ACCEPTED[line]
            assert getattr(read(shlex.split(line)), setting) == value


def test_a_first_word_that_is_no_command_suggests_one(subtests):
    for line in FIRST_WORDS:
        with subtests.test(line=line):
            with pytest.raises(RequestError, match=re.escape(FIRST_WORDS[line])):
                check_verb(shlex.split(line))


def test_every_option_of_every_verb_refuses_what_it_cannot_be(subtests):
    """A number that is none, an option without its value, a switch with one: one line, and no words of the parser."""
    for verb in register.entries():
        with subtests.test(verb=verb):
            study = register.load(verb)
            for parameter in parameters(verb):
                flag = parameter.opts[0]
                if parameter.param_type_name == "argument" or flag == "--help":
                    continue
                lines = [[f"{flag}=yes"]] if parameter.is_flag else [[flag], [flag, "a", flag.replace("--", "-"), "b"]]
                for words in lines:
                    with pytest.raises(RequestError, match="write|did you mean|leave"):
                        Line(study, parameters(verb)).check(words)
            assert study.verb == verb


@given(st.integers(-(10**9), 10**9))
def test_whole_numbers_read_back(number):
    assert parse_whole(str(number)) == parse_whole(f" {number:_} ") == parse_whole(f"{number}e0") == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimals_read_back(number):
    assert parse_decimal(repr(number)) == number


@given(st.text(alphabet="0123456789.,%/ke- x", max_size=12))
def test_what_is_no_number_is_refused_with_an_example_that_is_one(text):
    for parse in (parse_whole, parse_decimal):
        try:
            parse(text)
        except NumberError as error:
            assert not error.example or parse(error.example) is not None


AWKWARD = ("my data", "it's", 'a "b"', "$HOME", "x;y", "a&b", "naïve *", "(1)")
QUOTED = [
    # Words of a command line, the place of an awkward name in them, and the words that are printed to be typed.
    (["audit", "{}.npz"], ["--data", "{}.npz"]),
    (["audit", "--samples", "3", "{}.py:net"], ["--model", "{}.py:net"]),
    (["audit", "-out", "{}"], ["--out", "{}"]),
    (["audit", "out={}"], ["--out", "{}"]),
    (["audit", "--epsilon", "{}"], ["--eps", "{}"]),
    (["audit", "--weights", "{}.pt"], ["--model", "model.py:FACTORY?weights={}.pt"]),
    (["audit", "--model", "{}.py:net", "--weights", "{}.pt"], ["--model", "{}.py:net?weights={}.pt"]),
    (["audit", "--data", "{}.npz", "--bounds", "0,1"], ["--data", "{}.npz?low=0&high=1"]),
    (["audit", "--attack", "{}", "pgd"], ["--attack", "{}", "--attack", "pgd"]),
    (["corrupt", "--severity", "1", "2"], ["--severity", "1", "--severity", "2"]),
    (["{}.npz", "--eps", "{}"], ["brinell", "audit", "--data", "{}.npz", "--eps", "{}"]),
    (["{}.py:net"], ["brinell", "audit", "--model", "{}.py:net"]),
    (["{}.toml"], ["brinell", "audit", "{}.toml"]),
    (["--data", "{}.npz", "audit"], ["brinell", "audit", "--data", "{}.npz"]),
    (["--data", "{}.npz"], ["brinell", "audit", "--data", "{}.npz"]),
]


def test_the_words_to_type_can_be_pasted_with_any_name():
    faults = []
    for name in AWKWARD:
        for words, expected in QUOTED:
            words, expected = ([text.replace("{}", name) for text in texts] for texts in (words, expected))
            with pytest.raises(RequestError) as error:
                check_verb(words)
                Line(register.load(words[0]), parameters(words[0])).check(words[1:])
            typed = shlex.split(error.value.line.rpartition("write ")[2])
            faults += [] if typed == expected else [(words, error.value.line)]
    assert not faults


def test_a_name_with_spaces_is_put_together_in_quotation_marks():
    """Which the shell took apart."""
    for name in ("my data.npz", "my 'own' data.npz"):
        np.savez(name, x=np.zeros((2, 1, 8, 8)), y=np.arange(2))
        with pytest.raises(RequestError, match="a name with spaces") as error:
            Line(register.load("audit"), parameters("audit")).check(["--data", *name.split()])
        assert shlex.split(error.value.line.rpartition("write ")[2]) == ["--data", name]


def test_a_path_that_does_not_exist_suggests_one(capsys, subtests):
    rows = [
        ("runs\\x", "write runs/x"),
        ("C:\\d\\x.npz", "such as /mnt/c/d/x.npz"),
        ("d.npy.npz", "check"),
        ("d.nps", "did you mean 'd.npz'"),
    ]
    for path, advice in rows:
        with subtests.test(path=path):
            assert run(["audit", "--data", path]) == 2
            assert advice in capsys.readouterr().err


def test_a_default_folder_is_checked_before_anything_is_computed(tmp_path, monkeypatch):
    """Of every verb that writes into the folder that it is about unless --out names another."""
    verbs = {verb: study for verb, study in register.studies().items() if study.within}
    assert "explain" in verbs
    for verb, study in verbs.items():
        (tmp_path / verb).mkdir()
        (tmp_path / verb / study.verb).write_text("a file in the way")
        request = study.request.model_construct(**{study.within: str(tmp_path / verb)})
        with pytest.raises(RequestError, check=refused("store.files.check_writable")):
            Call(study=study, request=request, command="", progress=None)


def test_a_gpu_is_advised_where_there_is_one(tmp_path_factory, monkeypatch, capsys, subtests):
    for known in [True, False]:
        for device in ["gpu", "GPU", "nvidia", "gpu:1", "cuda1", "0"]:
            with subtests.test(device=device, known=known):
                tmp_path = tmp_path_factory.mktemp("case")
                monkeypatch.setattr(gpu, "DRIVERS", (tmp_path if known else tmp_path / "absent",))
                assert run(["audit", "--device", device]) == 2
                message = capsys.readouterr().err.replace("\n", " ")
                assert ("write --device cuda" in message) is known
                assert ("--device auto, which takes a GPU where there is one, or --device cpu" in message) is not known
