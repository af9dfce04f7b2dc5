"""The command line: every command is made from a record of the register.

A figure goes to standard output, everything said about it to standard error.
"""

import os
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.main import get_command

from brinell.cli import malloc
from brinell.cli.options import LOUDNESS, Quiet, Verbose, say, show
from brinell.cli.supervise import exit_code_without_answer, run_supervised
from brinell.core.errors import BrinellError
from brinell.core.version import VERSION
from brinell.studies import register

GREETING = """\
Brinell, the hardness test for classifiers: how large must a change be until a model errs?

  brinell audit                                           the built-in model on real digits, in half a minute
  brinell audit --data FILE.npz --model model.py:factory  your data, and the function that returns your network
  brinell epsilon FILE.npz                                which eps is sound for your data, and why
  brinell plugins                                         the attacks, cascades, norms, data sets and models by name

`brinell --help` lists every command, and `brinell audit --help` the options with examples."""
EXAMPLES = ("brinell audit", "brinell audit --data cifar10:DIR --model model.py:factory --eps 8/255 --attack standard")


def command_line(verb: str | None = None) -> typer.Typer:
    """The command line.

    Args:
        verb: the requested command: only its study is imported, and the others have their help only. None imports all.
    """
    from brinell.cli.command import epilog, function_of

    app = typer.Typer(
        name="brinell",
        help="The hardness test for classifiers: robust accuracy per class over a whole range of budgets.",
        epilog=epilog(EXAMPLES),
        no_args_is_help=False,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for name, entry in register.commands().items():
        if verb in (None, name):
            study = register.load(name)
            app.command(name, epilog=epilog(study.examples))(function_of(study, entry.help))
        else:
            app.command(name, help=entry.help)(_placeholder)
    return app


def _placeholder() -> None:
    """Placeholder for a command that was not requested: it has help alone."""


def _version(requested: bool) -> None:
    """Print the version and exit."""
    if requested:
        show(VERSION)
        raise typer.Exit


def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    LOUDNESS.quiet, LOUDNESS.verbose = quiet, verbose


def main() -> None:
    """Run the command line and end the process with its exit code."""
    arguments = sys.argv[1:]
    if "_BRINELL_COMPLETE" in os.environ or arguments[:1] in (["--install-completion"], ["--show-completion"]):
        words = os.environ.get("COMP_WORDS", os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
        command_line(next((word for word in words[1:] if word in register.commands()), None))(
            arguments, prog_name="brinell"
        )  # a shell asks for words; it ends the process itself

    def work() -> int:
        """Run the command; returns its exit code."""
        malloc.keep_freed_memory()
        return run(arguments)

    sys.exit(run_supervised(work, exit_code_without_answer(arguments)))


def run(arguments: list[str]) -> int:
    """The exit code of a command: 0 done, 1 gate or verification failed, 2 cannot be carried out, 3 stopped, 130 interrupted."""
    LOUDNESS.quiet = LOUDNESS.verbose = False
    if not arguments:
        show(GREETING)
        return 0
    try:
        first = next((word for word in arguments if not word.startswith("-")), "")
        if first:
            register.load(first)  # which names the nearest command where there is none
        commands: Any = get_command(command_line(first or None))
        code = commands(arguments, prog_name="brinell", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        say("interrupted; what was computed is kept")
        return 130
    except BrinellError as error:
        say(f"error: {error}")
        return error.exit_code
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        return 130
    except SystemExit as end:  # no verb raises it
        say(
            f"error: a file of a model or an attack ended the program (SystemExit: {end.code}), so there is no answer: take "
            "sys.exit out of it; what was computed is kept"
        )
        return exit_code_without_answer(arguments)
    except Exception as error:
        return _report_failure(error)


def _report_failure(error: Exception) -> int:
    """Report an unexpected error in one line; returns the exit code."""
    if hasattr(error, "format_message"):  # a wrong option or argument
        say(f"error: {error.format_message()}")
        return 2
    if LOUDNESS.verbose or os.environ.get("BRINELL_DEBUG"):
        raise error
    if isinstance(error, MemoryError):
        say("error: this machine has too little memory for it: give a smaller --batch-size or fewer --samples")
        return 3
    message = " ".join(str(error).split())[:300]
    place = traceback.extract_tb(error.__traceback__)[-1]
    say(f"error: {type(error).__name__}: {message} ({place.filename}, line {place.lineno}; BRINELL_DEBUG=1 shows all of it)")
    return 3


__all__ = ["command_line", "main", "run"]
