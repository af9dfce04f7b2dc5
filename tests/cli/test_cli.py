"""The command line in one process: verbs, JSON and exit codes; and in separate processes."""

import os
import re
import shlex
import subprocess
import sys
from unittest.mock import Mock

import pytest
from typer.main import get_command

from _cli import EPS, audit_arguments
from _helpers import assert_same_rows
from brinell import plugins
from brinell.attacks.pgd import PGD
from brinell.cli import PANELS, command_line, main
from brinell.cli import run as cli
from brinell.core.checks import Code
from brinell.core.errors import BrinellError
from brinell.core.intervals import clopper_pearson_low
from brinell.core.version import VERSION
from brinell.engine.attack_names import CASCADES
from brinell.store.run import LAYOUT, Run
from brinell.studies import register
from brinell.studies.kit import GROUPS

# Every verb


def test_audit(work, tmp_path, ask):
    code, answer = ask(*audit_arguments(work, tmp_path / "run"))
    assert code == 0
    assert (
        answer["folder"] == str(tmp_path / "run")
        and answer["n"] == 24
        and answer["models"][0]["eps_text"] == EPS.split(",")
    )
    records = Run.open(tmp_path / "run").rows
    assert answer["models"][0]["clean_accuracy"]["k"] == int((records.outcome == "correct").sum())
    robust = [rate["k"] for rate in answer["models"][0]["robust_accuracy"]]
    assert (
        robust == sorted(robust, reverse=True)
        and robust[0] == answer["models"][0]["clean_accuracy"]["k"]
        and robust[-1] < robust[0]
    )
    assert [stage["attack"] for stage in answer["models"][0]["stages"]] == ["fgsm", "pgd?steps=3"]
    assert sum(stage["forwards"] for stage in answer["models"][0]["stages"]) == int(
        records.forwards[records.attack != "clean"].sum()
    )
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files >= {"run.toml", "manifest.json", "rows.parquet", "arrays", "report.html"}


def test_a_dry_run_attacks_and_keeps_nothing(work, tmp_path, ask, capsys):
    code, answer = ask(*audit_arguments(work, tmp_path / "run", "--dry-run"), schema="plan")
    assert code == 0 and not (tmp_path / "run").exists()
    assert [cell["attack"] for cell in answer["cells"]] == ["fgsm", "pgd?steps=3"]
    assert (
        answer["cells"][0]["backwards_at_most"] == 24 * 3 * 1
        and answer["cells"][0]["seconds_at_most"] > 0
    )
    assert cli(audit_arguments(work, tmp_path / "run", "--dry-run")) == 0
    assert "at most" in capsys.readouterr().out


def test_cost_at_most_is_at_most(good, work, ask):
    _, planned = ask(*audit_arguments(work, "unused", "--dry-run"), schema="plan")
    records = Run.open(good).rows
    for cell in planned["cells"]:
        rows = records.attack == cell["attack"]
        assert 0 < records.forwards[rows].sum() <= cell["forwards_at_most"]
        assert 0 < records.backwards[rows].sum() <= cell["backwards_at_most"]


def test_run_toml_repeats_the_run(good, tmp_path):
    assert cli(["audit", str(good / "run.toml"), "--out", str(tmp_path / "again")]) == 0
    assert_same_rows(Run.open(good).rows, Run.open(tmp_path / "again").rows)


@pytest.mark.slow
def test_the_command_in_the_manifest_repeats_the_run(good, tmp_path):
    command = shlex.split(Run.open(good).manifest["command"])
    assert command[:2] == ["brinell", "audit"]
    assert cli([*command[1:], "--out", str(tmp_path / "again")]) == 0
    assert_same_rows(Run.open(good).rows, Run.open(tmp_path / "again").rows)


def test_report(copy, ask):
    (copy / "report.html").unlink()
    code, answer = ask("report", copy)
    assert code == 0 and answer["report"] == str(copy / "report.html")
    page = (copy / "report.html").read_text(encoding="utf-8")
    assert "parabola" in page and "<script src=" not in page


def test_compare(good, pair, ask, capsys, tmp_path):
    _, both = ask("audit", "--resume", "--out", pair)
    near_count, far_count = (model["robust_accuracy"][-1]["k"] for model in both["models"])
    assert [model["name"] for model in both["models"]] == [
        "near",
        "far",
    ] and near_count < far_count
    code, answer = ask("compare", pair, "--out", tmp_path / "pair")
    assert (
        code == 0
        and answer["n"] == 24
        and [model["run"] for model in answer["models"]] == [str(pair)] * 2
    )
    (rows,) = (entry["robust"] for entry in answer["pairs"])
    assert all(row["only_b"] == 0 for row in rows) and any(row["only_a"] > 0 for row in rows), (
        "what holds near holds far"
    )
    code, unchanged = ask("compare", good, pair, "--out", tmp_path / "three")
    assert code == 0 and len(unchanged["models"]) == 3
    assert cli(["compare", str(pair), "--out", str(tmp_path / "text")]) == 0
    assert "24 samples judged on every model" in capsys.readouterr().out


def test_gate(good, ask, capsys):
    for least, code in ((0.0, 0), (0.99, 1)):
        exit_code, answer = ask("gate", "--without-checks", good, "--robust", least)
        assert exit_code == code and answer["passed"] == (code == 0)
    assert cli(["gate", "--without-checks", str(good), "--robust", "0.99"]) == 1
    assert "gate failed" in capsys.readouterr().out
    assert (
        cli(
            [
                "gate",
                "--without-checks",
                str(good),
                "--clean",
                "0.5",
                "--eps",
                "0.05",
                "--worst-class",
                "0.0",
            ]
        )
        == 0
    )
    assert "gate passed" in capsys.readouterr().out


def test_a_figure_that_is_not_there_fails_the_gate(good, ask):
    code, answer = ask("gate", good, "--robust", "0.0", "--eps", "0.07")
    assert code == 1 and not answer["passed"]


def test_gate_judges_the_lower_end_of_the_interval(good, ask):
    _, answer = ask("audit", "--resume", "--out", good)
    rate = answer["models"][0]["robust_accuracy"][1]
    low, value = clopper_pearson_low(rate["k"], rate["n"], 0.025), rate["value"]
    assert low < rate["low"] < value
    assert (
        ask("gate", "--without-checks", good, "--robust", f"{low - 0.001}", "--eps", "0.05")[0] == 0
    )
    assert (
        ask("gate", "--without-checks", good, "--robust", f"{(low + value) / 2}", "--eps", "0.05")[
            0
        ]
        == 1
    )


def test_checks_are_told_everywhere(work, tmp_path, ask, capsys):
    """One step of FGSM is not an evaluation: a single gradient attack leaves a check unmade, and
    the output says so.
    """
    out = tmp_path / "run"
    arguments = audit_arguments(work, out)
    second = arguments.index("pgd?steps=3")
    del arguments[second - 1 : second + 1]
    code, answer = ask(*arguments)
    assert code == 0
    assert (
        "3 not made: for 2 of them it takes an attack without gradients, such as square"
        in answer["models"][0]["caveat"]
    )
    states = {check["code"]: check["passed"] for check in answer["models"][0]["checks"]}
    assert set(states) == set(Code)
    assert states["zero-gradients"] is True and states["incomplete-optimisation"] is None
    assert ask("gate", out, "--robust", "0", "--without-checks")[0] == 0
    code, verdict = ask("gate", out, "--robust", "0")
    assert verdict["weak"] == answer["models"][0]["weak"] == "FGSM"
    failed = [check["name"] for check in verdict["checks"] if not check["passed"]]
    assert code == 1 and failed == ["no warning black-box-better"]
    assert cli([*arguments, "--resume"]) == 0
    assert answer["models"][0]["verdict"] in " ".join(capsys.readouterr().out.split())


def test_export(good, tmp_path, ask, capsys):
    code, answer = ask("export", good, "--to", "csv", "--out", tmp_path / "csv")
    assert code == 0 and answer["where"] == str(tmp_path / "csv") and answer["files"]
    assert all((tmp_path / "csv" / name).is_file() for name in answer["files"])
    assert cli(["export", str(good), "--to", "robustbench", "--out", str(tmp_path / "entry")]) == 0
    out = capsys.readouterr().out
    assert (
        "note: autoattack_acc is left out" in out
        and f"robustbench: 1 files in {tmp_path / 'entry'}" in out
    )
    assert (
        cli(["export", str(good), "--to", "wandb"]) == 2
        and "csv, robustbench or hub" in capsys.readouterr().err
    )


def test_gate_against_a_baseline(pair, good, ask):
    assert ask("gate", "--without-checks", pair, "--model", "far", "--baseline", good)[0] == 0
    assert ask("gate", "--without-checks", good, "--baseline", good, "--max-drop", "0")[0] == 0
    assert ask("gate", "--without-checks", pair, "--model", "near", "--baseline", pair)[0] in (0, 2)


def test_a_check_that_was_not_made_does_not_read_as_passed(good, capsys):
    run = Run.open(good)
    checks = run.manifest["checks"]
    try:
        run.manifest["checks"] = {name: [] for name in checks}
        LAYOUT.save(run.path, run.manifest)
        capsys.readouterr()
        assert cli(["gate", str(good), "--robust", "0", "--without-checks"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert not [line for line in lines if line.startswith("pass") and "not made" in line]
        missing = [line for line in lines if line.startswith("not made  ")]
        assert any(
            line.endswith(" more: no sample is classified correctly") for line in missing
        ) and re.match(
            r"gate passed, \d+ conditions; \d+ not made, which --without-checks "
            r"allows; the attacks are weaker than fast: FGSM",
            lines[0],
        )
        assert cli(["gate", str(good), "--robust", "0"]) == 1
        assert "not made  " not in capsys.readouterr().out
    finally:
        run.manifest["checks"] = checks
        LAYOUT.save(run.path, run.manifest)


def test_plugins(ask, capsys):
    code, answer = ask("plugins")
    assert code == 0
    assert {(plugin["kind"], plugin["name"]) for plugin in answer["plugins"]} == {
        (kind, name) for kind in plugins.FOLDERS for name in plugins.names(kind)
    } | {("cascade", name) for name in CASCADES}
    assert {plugin["kind"] for plugin in ask("plugins", "attack")[1]["plugins"]} == {"attack"}
    assert cli(["plugins", "distance"]) == 0
    assert "linf" in capsys.readouterr().out


def test_plugins_list_the_cascades(ask, capsys):
    _, answer = ask("plugins", "cascade")
    assert {cascade["name"]: tuple(cascade["stages"]) for cascade in answer["plugins"]} == CASCADES
    assert cli(["plugins", "cascade"]) == 0
    assert re.search(
        r"^cascade +standard .*\(also autoattack\)", capsys.readouterr().out, flags=re.MULTILINE
    )
    assert (
        cli(["plugins", "cascades"]) == 2 and "did you mean 'cascade'?" in capsys.readouterr().err
    )


def test_quiet_leaves_the_answer_in_words(work, tmp_path, capsys):
    words = audit_arguments(work, tmp_path / "run")
    assert cli(["-q", *words]) == 0
    out, err = capsys.readouterr()
    assert (
        re.search(r"\d+ checks passed", out)
        and "24 samples" in out
        and f"page: {tmp_path / 'run' / 'report.html'}" in out
    )
    assert not [line for line in err.splitlines() if "warning" not in line]
    assert cli(audit_arguments(work, tmp_path / "third", "--samples", "2")) == 0
    assert re.search(
        r"brinell: parabola 1/2 FGSM: \d+ samples, \d+ forwards", capsys.readouterr().err
    ), "for one command alone"


def test_an_unexpected_failure_shows_its_trace_on_demand(good, monkeypatch, capsys):
    monkeypatch.setattr("brinell.studies.verification.run.carry_out", lambda call: 1 / 0)
    assert cli(["verify", str(good)]) == 3
    assert re.search(
        r"ZeroDivisionError: .*test_cli.py, line \d+; BRINELL_DEBUG=1", capsys.readouterr().err
    )
    with pytest.raises(ZeroDivisionError):
        cli(["-v", "verify", str(good)])


def test_the_program_ends_with_the_code_of_its_command(monkeypatch, capsys):
    fallbacks = []
    monkeypatch.setattr(
        "brinell.cli.run_supervised", lambda work, fallback: fallbacks.append(fallback) or work()
    )
    monkeypatch.setattr("brinell.cli.malloc.keep_freed_memory", lambda: True)
    for words, code, fallback in (
        (["--version"], 0, 3),
        (["verify", "nowhere"], 2, 1),
        (["audit", "--eps", "-1"], 2, 3),
    ):
        monkeypatch.setattr("sys.argv", ["brinell", *words])
        with pytest.raises(SystemExit) as end:
            main()
        assert (end.value.code, fallbacks.pop()) == (code, fallback)
    assert capsys.readouterr().out == f"{VERSION}\n"


def test_a_failure_in_one_line_with_its_code(good, monkeypatch, capsys):
    failures = {
        KeyboardInterrupt(): (130, ""),
        SystemExit(0): (1, "ended the program (SystemExit: 0)"),
        MemoryError(): (2, "the memory of device cpu does not suffice"),
        ValueError("two\nlines"): (3, "ValueError: two lines ("),
        BrinellError("a line of ours"): (BrinellError("").exit_code, "error: a line of ours"),
    }
    for failure, (code, message) in failures.items():
        monkeypatch.setattr("brinell.studies.verification.run.carry_out", Mock(side_effect=failure))
        assert cli(["verify", str(good)]) == code
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == bool(message)


def test_brinell_alone_greets(capsys):
    """Four commands, each of which there is."""
    assert cli([]) == 0
    command_names = re.findall(r"^  brinell (\S+)", capsys.readouterr().out, flags=re.MULTILINE)
    assert len(command_names) == 4 and set(command_names) <= set(register.entries())


MOST_OPTIONS = 255
"""Options over all verbs."""


def leaves(group, before=()):
    """Commands by the words that name them."""
    found = {}
    for name, command in group.commands.items():
        found |= (
            leaves(command, (*before, name))
            if hasattr(command, "commands")
            else {" ".join((*before, name)): command}
        )
    return found


def test_help_is_short(capsys):
    """Panels of verbs, twelve options of a verb and then the others, and no more options than
    people can survey."""
    assert cli(["--help"]) == 0
    text = capsys.readouterr().out
    text = re.sub(r"Installed:\n(  .*\n)+\n", "", text)
    assert [line for line in text.splitlines() if line.endswith(":")] == [
        *(f"{panel}:" for panel in PANELS),
        "Options:",
    ]
    assert text.count("\n") <= 40
    assert cli(["audit", "--help"]) == 0
    first = capsys.readouterr().out.partition("\nAdvanced:")[0]
    assert first.count("\n") <= 60 and len(re.findall(r"^  --", first, flags=re.MULTILINE)) <= 12
    commands = leaves(get_command(command_line())).values()
    assert (
        sum(
            parameter.param_type_name == "option"
            for command in commands
            for parameter in command.params
        )
        <= MOST_OPTIONS
    )


def test_examples_of_the_help_can_be_typed():
    """Every option of every example exists, and what it must be given is given."""
    commands, faults = leaves(get_command(command_line())), []
    for example in [example for study in register.studies().values() for example in study.examples]:
        _, verb, *arguments = shlex.split(example)
        if verb in GROUPS:
            verb, arguments = f"{verb} {arguments[0]}", arguments[1:]
        try:
            remaining = commands[verb].make_context(verb, arguments, resilient_parsing=False).args
        except Exception as error:
            remaining = repr(error)
        faults += [(example, remaining)] if remaining else []
    assert not faults


def test_every_verb_has_an_example(capsys):
    for name in register.commands():
        assert cli([*name.split(), "--help"]) == 0
        assert re.search(rf"Examples:\n    brinell {name}\b", capsys.readouterr().out)


@pytest.mark.slow
def test_a_shell_completes_words():
    """`brinell au<TAB>` in bash, and the script that makes it ask."""
    environment = {
        "_BRINELL_COMPLETE": "complete_bash",
        "COMP_WORDS": "brinell au",
        "COMP_CWORD": "1",
    }
    process = subprocess.run(
        [sys.executable, "-m", "brinell"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert (process.returncode, process.stdout.split(), process.stderr) == (0, ["audit"], "")
    script = subprocess.run(
        [sys.executable, "-m", "brinell", "--show-completion", "bash"],
        env=os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
    )
    assert script.returncode == 0 and "_brinell_completion" in script.stdout and not script.stderr


# Processes of their own


# A shell that starts the tests in the background has them, and all that they start, ignore SIGINT.
MAIN = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from "
    "brinell.cli import main; main()"
)


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_reader_that_goes_away():
    """`brinell plugins | head -0`: no complaint."""
    with start("plugins") as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0


def test_what_is_interrupted_goes_on(work, good, tmp_path, capsys, monkeypatch):
    """Ctrl-C in the second attack: 130, one line that says how to go on, and the records of the
    first; and it does go on.
    """
    out = tmp_path / "my run"

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PGD, "__call__", interrupt)
        assert cli(audit_arguments(work, out)) == 130
    printed, error = capsys.readouterr()
    assert printed == "" and "Traceback" not in error
    command = shlex.split(re.search(r"go on with (brinell .*--out '.*my run')", error)[1])
    assert list(out.glob(".parts/*.parquet")), "what was computed is gone"
    assert cli(command[1:]) == 0
    assert_same_rows(Run.open(good).rows, Run.open(out).rows)


def test_version(capsys):
    assert cli(["--version"]) == 0
    assert capsys.readouterr().out == f"{VERSION}\n"
