"""The command line: every command is made from a record of the register.

A figure goes to standard output, everything said about it to standard error.
"""

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from brinell.cli import malloc
from brinell.cli.options import ROOT, say, show, verb_of
from brinell.cli.supervise import exit_code_without_answer, interruption_code, run_supervised
from brinell.core.errors import BrinellError
from brinell.core.user_files import user_path
from brinell.core.version import VERSION
from brinell.studies import register
from brinell.studies.kit import GROUPS

GREETING = """\
Brinell, the hardness test for classifiers: how large must a change be until a model errs?

  brinell audit                                           the built-in model on real digits, in half a minute
  brinell audit --data FILE.npz --model model.py:factory  your data, and the function that returns your network
  brinell epsilon FILE.npz                                which eps is sound for your data, and why
  brinell plugins                                         the attacks, cascades, norms, data sets and models by name

`brinell --help` lists every command, and `brinell audit --help` the options with examples."""
PANELS = {
    "Measure": ("audit", "compare", "transfer", "corrupt", "explain", "epsilon", "unrestricted"),
    "Prove": ("certify",),
    "Improve": ("benchmark", "harden", "train"),
    "Share": ("report", "gate", "verify", "claim", "board", "export", "review"),
    "Tools": ("plugins", "doctor"),
}
"""The verbs as the help lists them; those of installed packages follow."""


COMMON = ("version", "quiet", "verbose", "trust", "on")
"""Options of the root that the help lists."""
BEFORE_VERB = {
    "-q": "-q",
    "--quiet": "--quiet",
    "-v": "-v",
    "--verbose": "--verbose",
    "--trust": "--trust DIR",
    "--on": "--on WORKERS",
}
"""Options of the root, each as it is written before a verb."""


class Verbs(TyperGroup):
    """The group of all commands, listed by panel."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the panels and the options."""
        self.format_commands(ctx, formatter)
        options = [option for option in self.get_params(ctx) if option.name in COMMON]
        records = [option.get_help_record(ctx) for option in options]
        with formatter.section("Options"):
            formatter.write_dl([record for record in records if record])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the panels."""
        names = {verb for verbs in PANELS.values() for verb in verbs}
        installed = [verb for verb in self.commands if verb not in names]
        # One column for all panels, so that the helps stand below each other.
        # The 6 is three times the spacing of columns, as click reckons.
        limit = formatter.width - 6 - max(map(len, self.commands))
        for title, verbs in {**PANELS, "Installed": installed}.items():
            rows = [
                (verb, self.commands[verb].get_short_help_str(limit))
                for verb in verbs
                if verb in self.commands
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=14)


def command_line(verb: str | None = None) -> typer.Typer:
    """The command line.

    Args:
        verb: the requested command: only its study is imported, and the others have their help
            only. None imports all.
    """
    from brinell.cli.command import HelpByPanel, epilog, function_of

    def make_group(name: str, help: str, **settings: Any) -> typer.Typer:
        return typer.Typer(
            name=name, help=help, pretty_exceptions_enable=False, rich_markup_mode=None, **settings
        )

    app = make_group("brinell", "How large must a change be until a classifier errs?", cls=Verbs)
    app.callback()(_root)
    groups = {name: make_group(name, help) for name, help in GROUPS.items()}
    for name, group in groups.items():
        app.add_typer(group, name=name)
    # Only the requested command imports its study; the others have their help alone.
    for name, entry in register.commands().items():
        first, _, word = name.partition(" ")
        place = groups.get(first, app)
        if verb in (None, first):
            study = register.load(name)
            make = place.command(word or name, cls=HelpByPanel, epilog=epilog(study.examples))
            make(function_of(study, entry.help))
        else:
            place.command(word or name, help=entry.help)(_placeholder)
    return app


def _placeholder() -> None:
    """Placeholder for a command that was not requested: it has help alone."""


def _version(requested: bool) -> None:
    """Show the version and end, if it was requested."""
    if requested:
        show(VERSION)
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the answer, warnings and errors.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Name every stage; show the trace of a failure.")
    ] = False,
    trust: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Use the code and files that a folder names.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="ray|ranks|local",
            help="Who works: Ray, ranks, or this process.",
        ),
    ] = None,
) -> None:
    """Take the options before the verb."""
    ROOT.quiet = quiet
    ROOT.verbose = verbose
    ROOT.on = on

    # A path of the user's, with a home folder in full.
    ROOT.trust = None if trust is None else user_path(trust)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    arguments = sys.argv[1:]
    completes = arguments[:1] in (["--install-completion"], ["--show-completion"])
    if "_BRINELL_COMPLETE" in os.environ or completes:
        # A shell asks for words; typer ends the process itself.
        words = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
        command_line(verb_of(words[1:]) or None)(arguments, prog_name="brinell")

    def work() -> int:
        """Run the command; returns its exit code."""
        malloc.keep_freed_memory()
        return run(arguments)

    sys.exit(run_supervised(work, exit_code_without_answer(arguments)))


def run(arguments: list[str]) -> int:
    """The exit code of a command.

    0 done, 1 gate or verification failed, 2 cannot be carried out, 3 stopped, 130 interrupted, 143
    ended by a scheduler.
    """
    # A command may run in the process of another one, such as a test, and leaves nothing to it.
    ROOT.reset()
    if not arguments:
        show(GREETING)
        return 0

    try:
        verb = verb_of(arguments)
        if verb and verb not in GROUPS:
            register.load(verb)  # which names the nearest command where there is none
        commands: Any = get_command(command_line(verb or None))
        code = commands(arguments, prog_name="brinell", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt as interruption:
        say("interrupted; what was computed is kept")
        return interruption_code(interruption)
    except BrinellError as error:
        say(f"error: {error}")
        return error.exit_code
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        return 130
    except SystemExit as end:  # no verb raises it
        say(
            "error: a file of a model or an attack ended the program "
            f"(SystemExit: {end.code}), so there is no answer: take "
            "sys.exit out of it; what was computed is kept"
        )
        return exit_code_without_answer(arguments)
    except Exception as error:
        return _report_failure(error)


def _place_of_option(error: Any) -> str:
    """Where an option belongs that a command does not know; empty if the root does not either."""
    name = getattr(error, "option_name", "")
    if type(error).__name__ != "NoSuchOption" or name not in BEFORE_VERB:
        return ""
    program, _, verb = error.ctx.command_path.partition(" ")
    return f"; it stands before the command: {program} {BEFORE_VERB[name]} {verb}"


def _report_failure(error: Exception) -> int:
    """Report an unexpected error in one line; returns the exit code."""
    # A wrong option or argument, of click.
    if hasattr(error, "format_message"):
        say(f"error: {error.format_message()}{_place_of_option(error)}")
        return 2
    if ROOT.verbose or os.environ.get("BRINELL_DEBUG"):
        raise error
    if isinstance(error, MemoryError):
        say(
            "error: this machine has too little memory for it: give a smaller "
            "--batch-size or fewer --samples"
        )
        return 3

    message = " ".join(str(error).split())[:300]
    place = traceback.extract_tb(error.__traceback__)[-1]
    say(
        f"error: {type(error).__name__}: {message} ({place.filename}, line "
        f"{place.lineno}; BRINELL_DEBUG=1 shows all of it)"
    )
    return 3


__all__ = ["command_line", "main", "run"]
