"""The command line: one module per verb. A figure goes to standard output, everything said about it to standard error."""

import os
import sys
from typing import Annotated, Any

import typer

from brinell.cli import (
    audit,
    benchmark,
    compare,
    corrupt,
    detect,
    epsilon,
    examples,
    explain,
    export,
    gate,
    harden,
    malloc,
    plugins,
    progress,
    report,
    sign,
    study,
    train_agent,
    train_generator,
    train_metric,
    transfer,
    unrestricted,
    verify,
)
from brinell.cli.options import LOUDNESS, Quiet, Verbose, say, show
from brinell.cli.supervise import supervised, unanswered
from brinell.cli.verb import Verb
from brinell.core.errors import BrinellError
from brinell.core.version import VERSION

VERBS: dict[str, Any] = {
    "audit": audit.audit,
    "epsilon": epsilon.epsilon,
    "train-agent": train_agent.train_agent,
    "train-metric": train_metric.train_metric,
    "benchmark": benchmark.benchmark,
    "detect": detect.detect,
    "explain": explain.explain,
    "train-generator": train_generator.train_generator,
    "unrestricted": unrestricted.unrestricted,
    "harden": harden.harden,
    "progress": progress.progress,
    "report": report.report,
    "sign": sign.sign,
    "compare": compare.compare,
    "study": study.study,
    "transfer": transfer.transfer,
    "corrupt": corrupt.corrupt,
    "gate": gate.gate,
    "export": export.export,
    "verify": verify.verify,
    "plugins": plugins.plugins,
}


def command_line() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="brinell",
        help="The hardness test for classifiers: robust accuracy per class over a whole range of budgets.",
        epilog=examples.epilog(""),
        no_args_is_help=False,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for name, function in VERBS.items():
        app.command(name, epilog=examples.epilog(name))(function.command() if isinstance(function, Verb) else function)
    return app


def _version(asked: bool) -> None:
    if asked:
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
        command_line()(arguments, prog_name="brinell")  # a shell asks for words; it ends the process itself

    def work() -> int:
        malloc.keep_freed_memory()
        return run(arguments)

    sys.exit(supervised(work, unanswered(arguments)))


def run(arguments: list[str]) -> int:
    """The exit code of a command: 0 done, 1 gate or verification failed, 2 cannot be carried out, 3 stopped, 130 interrupted."""
    LOUDNESS.quiet = LOUDNESS.verbose = False
    if not arguments:
        show(examples.GREETING)
        return 0
    try:
        code = command_line()(arguments, prog_name="brinell", standalone_mode=False)
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
        return unanswered(arguments)
    except Exception as error:
        return _other(error)


def _other(error: Exception) -> int:
    """The exit code of what is none of our errors, which is said in a line."""
    if hasattr(error, "format_message"):  # a wrong option or argument, in typer's own words
        say(f"error: {error.format_message()}")
        return 2
    if LOUDNESS.verbose or os.environ.get("BRINELL_DEBUG"):
        raise error
    if isinstance(error, MemoryError):
        say("error: this machine has too little memory for it: give a smaller --batch-size or fewer --samples")
        return 3
    said = " ".join(str(error).split())[:300]
    say(f"error: {type(error).__name__}: {said}; this should not happen: please report it, with what BRINELL_DEBUG=1 shows")
    return 3


__all__ = ["command_line", "main", "run"]
