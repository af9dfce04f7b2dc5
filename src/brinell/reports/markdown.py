"""A report in Markdown, for a pull request, an issue or a model card."""

from collections.abc import Iterator

from brinell.core.outward import markdown as safe
from brinell.reports.numbers import detail_text, main_text
from brinell.reports.values import Facts, Report, Table


def markdown(report: Report) -> str:
    """Headline, sentences, notes, tables that are not folded, and steps."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"## {safe(report.title)}"
    yield ""
    yield safe(report.subject)
    yield ""
    for index, sentence in enumerate(report.sentences):
        yield f"**{safe(sentence)}**" if index == 0 else safe(sentence)
        yield ""
    for note in report.notes:
        yield f"> {safe(note.text)}"
        yield ""
    for block in report.blocks:
        if isinstance(block, Table) and block.page and not block.folded:
            yield f"### {safe(block.title)}"
            yield ""
            yield from table_lines(block)
            yield ""
        elif isinstance(block, Facts) and not block.folded:
            yield from (f"- {safe(name)}: {safe(main_text(value))}" for name, value in block.facts)
            yield ""
    for step in report.steps:
        yield f"- {safe(step.text)} `{safe(step.command)}`"


def table_lines(table: Table) -> Iterator[str]:
    """A table in Markdown."""
    yield _row(table.columns)
    yield "|" + " --- |" * len(table.columns)
    yield from (_row([_text(value) for value in row]) for row in table.rows)


def _text(value: object) -> str:
    detail = detail_text(value)
    return f"{main_text(value)} ({detail})" if detail else main_text(value)


def _row(cells: object) -> str:
    return "| " + " | ".join(safe(str(cell)).replace("|", "\\|") for cell in cells) + " |"  # type: ignore[attr-defined]
