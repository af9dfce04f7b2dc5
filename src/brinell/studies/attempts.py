"""Attempts to carry a call out: where memory or an operation is missing, again with smaller batches
or on the processor.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from brinell.core.errors import (
    BrinellError,
    MemoryShortError,
    ModelError,
    RequestError,
    one_line,
    option,
)
from brinell.studies.kit import Call, Output, command_of
from brinell.studies.register import write_page

LACKS = re.compile(
    r"not (currently |yet )?(implemented|supported) (for|on) the \w+ (device|backend)"
    r"|Could not run 'aten::\S+' with arguments from the '\w+' backend"
    r"|(doesn't|does not) support float64",
    re.IGNORECASE,
)
"""Words of torch about an operation or a type that a device lacks, as mps lacks float64."""
PROCESSOR = "cpu"


def carry_out(call: Call) -> Any:
    """The result of a call.

    If memory is short and no row depends on the batch size, the call goes on with half of it. If
    the device lacks an operation, it goes on on the processor. Both are said in one line, and the
    manifest holds what was taken.

    Raises:
        MemoryShortError: memory is short, and there is no smaller batch to take.
    """
    _check_region(call)
    run = call.study.resolve(call.study.run)
    while True:
        folders: list[Path] = []
        try:
            result = run(replace(call, begin=partial(_begin, call, folders)))
            for folder in folders[-1:]:  # the last that the call began, if it began any
                write_neighbours(folder)
            return result
        except Exception as error:
            if isinstance(error, BrinellError) and not folders:
                _list_mistakes(call, error)
            changes, text = _other_way(call, error)
            # A folder that was begun allows another attempt only where the study can resume it.
            can_go_on = not folders or call.study.resume or call.study.output is not Output.FOLDER
            if not changes or not can_go_on:
                # Without changes the text says what memory is short of, and what to do.
                if not isinstance(error, BrinellError) and text:
                    raise MemoryShortError(text) from error
                raise
        # Outside the except block, because the error references the memory of the failed attempt.
        from brinell.core.memory import release_memory

        release_memory()
        call.progress.warn(text)
        request = call.request.model_copy(update=changes)
        # A folder that was begun is resumed: what it holds does not depend on the batch size.
        if folders and call.study.output is Output.FOLDER:
            call = replace(call, request=request, out=folders[-1], resume=True)
        else:
            call = replace(call, request=request)


def write_neighbours(folder: Path) -> None:
    """Write the pages of the results that a folder lies in and that lie in it again: they link to
    each other.
    """
    from brinell.store.folder import MANIFEST, PAGE

    folders = (folder.resolve().parent, *(path.parent for path in folder.glob(f"*/{MANIFEST}")))
    for neighbour in folders:
        if (neighbour / MANIFEST).is_file() and (neighbour / PAGE).is_file():
            write_page(neighbour)


def _begin(call: Call, folders: list[Path], path: Path) -> None:
    """Note a folder that a call begins, and tell whoever made the call."""
    folders.append(path)
    call.begin(path)


def _list_mistakes(call: Call, error: BrinellError) -> None:
    """Raise one error for all mistakes about data and models, if there are more than one."""
    if not isinstance(error, RequestError | ModelError):
        return
    from brinell.engine.mending import all_mistakes, joined

    errors, settings = all_mistakes(error, call.request)
    if len(errors) > 1:
        command = ""
        if settings:
            request = type(call.request).model_validate(settings)
            command = command_of(request, call.study)
        raise joined(errors, command) from error


def _check_region(call: Call) -> None:
    """Refuse data with a region for a study that changes more than attacks do."""
    has_region = any(data.domain.region is not None for data in call.datasets.values())
    for name in type(call.request).model_fields:
        mark = call.request.names_of(name)
        if mark is not None and mark.kind == "dataset":
            has_region |= "region=" in str(getattr(call.request, name) or "")
    if has_region and not call.study.keeps_region:
        raise RequestError(
            f"brinell {call.study.command} is about whole inputs, and the data have a region",
            remedy="leave region= out of the data",
            option="region",
        )


def _other_way(call: Call, error: Exception) -> tuple[dict[str, Any], str]:
    """Settings with which the call may go on, and the line about them or about what is short; both
    empty for other errors.
    """
    from brinell.core.memory import is_memory_short

    request = call.request
    chain = list(_causes(error))
    size = getattr(request, "batch_size", 1)
    device = getattr(request, "device", PROCESSOR)
    if any(isinstance(cause, MemoryShortError) or is_memory_short(cause) for cause in chain):
        # Smaller batches are taken unasked only where no row depends on their size.
        if call.study.rows is not None and "batch_size" in call.study.ignored and size > 1:
            return {
                "batch_size": size // 2
            }, f"memory was short for batches of {size} inputs: from here on they hold {size // 2}"
        smaller = f"give a smaller {option('batch_size')}, or " if size > 1 else ""
        advice = (
            f"{smaller}{option('device', PROCESSOR)}"
            if device != PROCESSOR
            else f"{smaller}fewer samples"
        )
        return (
            {},
            f"the memory of device {device} does not suffice ({one_line(error, most=160)}): {advice}",
        )
    lack = next((cause for cause in chain if LACKS.search(str(cause))), None)
    if lack is not None and device != PROCESSOR:
        return (
            {"device": PROCESSOR},
            f"device {device} cannot do it all ({one_line(lack, most=120)}): the "
            "processor goes on with it",
        )
    return {}, ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those from which it was raised."""
    while error is not None:
        yield error
        error = error.__cause__
