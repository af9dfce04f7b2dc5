"""The command line: one module per verb. A figure goes to standard output, everything said about it to standard error."""

import os
import sys

import typer

from brinell.cli import (
    audit,
    benchmark,
    compare,
    detect,
    epsilon,
    gate,
    plugins,
    report,
    train_agent,
    train_generator,
    train_metric,
    unrestricted,
    verify,
)
from brinell.cli import malloc as heap
from brinell.core.errors import BrinellError

app = typer.Typer(
    name="brinell",
    help="The hardness test for classifiers: robust accuracy per class over a whole range of budgets.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("audit")(audit.audit)
app.command("epsilon")(epsilon.epsilon)
app.command("train-agent")(train_agent.train_agent)
app.command("train-metric")(train_metric.train_metric)
app.command("benchmark")(benchmark.benchmark)
app.command("detect")(detect.detect)
app.command("train-generator")(train_generator.train_generator)
app.command("unrestricted")(unrestricted.unrestricted)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("gate")(gate.gate)
app.command("verify")(verify.verify)
app.command("plugins")(plugins.plugins)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    heap.keep_freed_memory()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of a command: 0 done, 1 gate or verification failed, 2 cannot be carried out, 3 stopped, 130 interrupted."""
    try:
        code = app(arguments, prog_name="brinell", standalone_mode=False)
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
    except Exception as error:
        if hasattr(error, "format_message"):  # a wrong option or argument, in typer's own words
            say(f"error: {error.format_message()}")
            return 2
        if os.environ.get("BRINELL_DEBUG"):
            raise
        say(f"error: {type(error).__name__}: {error}; this should not happen: please report it, with what BRINELL_DEBUG=1 shows")
        return 3


def say(text: str) -> None:
    """One line on standard error."""
    print(f"brinell: {' '.join(text.split())}", file=sys.stderr, flush=True)  # noqa: T201


__all__ = ["app", "main", "run"]
