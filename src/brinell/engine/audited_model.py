"""A model under audit: its plan, folder and batch size, and what is found of it."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from brinell.core.contracts import Remark
from brinell.core.model import Model
from brinell.core.record import CLEAN, Array, Records
from brinell.engine.batch_sizer import BatchSizer
from brinell.engine.piece import Piece, PieceAnswer
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.engine.time_limit import TimeLimit
from brinell.store import rows
from brinell.store.parts import Parts, PieceResult
from brinell.store.run import NO_ROWS
from brinell.store.run_manifest import file_name

FAILED = "failed-samples"
"""The code of the warning that samples could not be judged."""
MEMORY, OF_MODEL = "memory", "model"
"""The places of remarks on short memory and on a remote model, beside those of stages."""


class AuditedModel:
    """State that all parts of one model's audit share.

    Args:
        plan: the plan.
        source: where the model comes from.
        models: the model, then the surrogates whose gradients some stages follow.
        folder: the folder of the audit.
        entries: entries of the manifest by key and model, which are filled.
        progress: told what goes on.
        sizer: the batch size; each of its reductions is a remark.
        limit: the time in which the audit ends; None for no limit.
    """

    def __init__(
        self,
        plan: Plan,
        source: ModelSource,
        models: Sequence[Model],
        folder: Path,
        entries: dict[str, Any],
        progress: Progress,
        sizer: BatchSizer | None = None,
        limit: TimeLimit | None = None,
    ) -> None:
        self.plan, self.source = plan, source
        self.model, *self.surrogates = models
        self.folder, self.entries, self.progress = folder, entries, progress
        self.limit = limit or TimeLimit()

        self.parts = Parts(folder)
        self.rows: dict[str, Records] = {}
        """Rows of the first check and of the stages so far, by name."""
        self.shortages: list[Remark] = []
        """Reductions of the batch size that no answer of a piece states yet."""
        self.sizer = sizer or BatchSizer(plan.request.batch_size, self.shortages.append)

    def all_rows(self) -> Records:
        """The rows of the first check and of the stages so far."""
        return rows.concatenate([NO_ROWS, *self.rows.values()])

    def load(self, ids: Array) -> Tensor:
        """Load the inputs (n, *shape) of these samples to the device of the audit."""
        return self.plan.dataset.load(ids.tolist()).to(self.plan.device)

    def short_name(self, name: str) -> str:
        """Short name of a stage; other names, such as that of the clean check, stay as they are."""
        return next((stage.short or name for stage in self.plan.stages if stage.name == name), name)

    def count_passes(self, forwards: int, backwards: int) -> None:
        """Count passes of an attack, which ends here if the time is up."""
        self.progress.count_passes(forwards, backwards)
        self.limit.check()

    def key(self, name: str) -> str:
        """The key of a piece of this model."""
        return f"{self.plan.models.index(self.source) + 1}-{name}"

    def file(self, stage: str) -> str:
        """The name of the files of a stage, or of the first check."""
        names = [CLEAN, *(entry.name for entry in self.plan.stages)]
        return file_name(self.plan.models.index(self.source), names.index(stage), stage)

    def resume_stage(
        self, stage: str, key: str, pieces: Generator[Sequence[Piece], PieceAnswer, PieceResult]
    ) -> Generator[Sequence[Piece], PieceAnswer, PieceResult]:
        """The result of a stage: one that an interrupted run wrote under `key`, or that of its
        pieces.

        Once the result is written, the answers of its single pieces, `{key}~...`, are deleted.
        """
        answer = self.parts.read(key, Records)
        # A stage of an interrupted run: its rows are kept, and its facts are taken over.
        if answer is not None:
            self.take(stage, answer.facts)
        else:
            answer = yield from pieces
            if "cut" in answer.facts or self.plan.grows:
                # Time was up, or more samples may follow: whoever goes on needs the answers of the
                # pieces.
                return answer
            if len(answer.rows):
                answer = self.parts.write(key, answer)
        self.parts.drop(f"{key}~")
        return answer

    def note(self, stage: str, remarks: Iterable[Remark]) -> None:
        """Record remarks in the manifest, each code once."""
        self._record(stage, {remark.code: remark.text for remark in remarks})

    def take(self, stage: str, facts: Mapping[str, Any]) -> None:
        """Record what the answer of a piece says besides its rows (`facts_of`)."""
        for sample, reason in facts.get("failed", {}).items():
            self.section("failed").setdefault(stage, {})[sample] = reason
            self.progress.warn(
                f"{self.source.name}, {stage}: sample {sample} cannot be judged: {reason}"
            )
        for place, remarks in facts.get("remarks", {}).items():
            self._record(place, remarks)
        if legend := facts.get("legend"):
            self.section("extras").setdefault(stage, legend)
        if traffic := facts.get("traffic"):
            total = self.section("traffic")
            total.update({kind: total.get(kind, 0) + count for kind, count in traffic.items()})

    def _record(self, place: str, remarks: Mapping[str, str]) -> None:
        """Record remarks by code, and say those that are new."""
        recorded = self.section("remarks").setdefault(place, {}) if remarks else {}
        new = {code: text for code, text in remarks.items() if code not in recorded}
        recorded.update(new)
        for text in new.values():
            self.progress.note(f"{self.source.name}, {self.short_name(place)}: {text}")

    def failure_warning(self) -> dict[str, str]:
        """The warning that samples could not be judged, by its code; empty if there is none."""
        stages = {stage: samples for stage, samples in self.section("failed").items() if samples}
        if not stages:
            return {}

        first = next(iter(stages))
        sample, reason = next(iter(stages[first].items()))
        count = len({failed for samples in stages.values() for failed in samples})
        text = (
            f"{count} of {len(self.plan.ids)} samples could not be judged; the first: "
            f"{sample} in {first}: {reason}"
        )
        return {FAILED: text}

    def section(self, key: str) -> dict[str, Any]:
        """The entry of this model in a table of the manifest."""
        section: dict[str, Any] = self.entries.setdefault(key, {}).setdefault(self.source.name, {})
        return section


def facts_of(
    model: Model,
    shortages: list[Remark],
    stage: str = "",
    *,
    remarks: Sequence[Remark] = (),
    **facts: Any,
) -> dict[str, Any]:
    """The facts of an answer, as JSON, without empty ones.

    Remarks go by their place: `remarks` are of the `stage`, shortages of `MEMORY`. The list of
    shortages is empty afterwards, so that each is stated once.
    """
    server = model.info.server
    if server is not None:
        facts["traffic"] = dict(server.traffic())

    by_place = {MEMORY: list(shortages), stage: remarks}
    shortages.clear()
    texts = {
        place: {remark.code: remark.text for remark in entries}
        for place, entries in by_place.items()
        if entries
    }
    return {key: value for key, value in {**facts, "remarks": texts}.items() if value}


def merge_facts(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The facts of all answers of a stage; of remarks the first of each code."""
    failed: dict[str, str] = {}
    remarks: dict[str, dict[str, str]] = {}
    traffic: dict[str, int] = {}
    legend: Mapping[str, Any] = {}

    for facts in parts:
        failed |= facts.get("failed", {})
        legend = legend or facts.get("legend", {})
        for place, texts in facts.get("remarks", {}).items():
            # The right side wins, which is the earlier one.
            remarks[place] = texts | remarks.get(place, {})
        for kind, count in facts.get("traffic", {}).items():
            traffic[kind] = traffic.get(kind, 0) + count

    return {"failed": failed, "remarks": remarks, "traffic": traffic, "legend": legend}
