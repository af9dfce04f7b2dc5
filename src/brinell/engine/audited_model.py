"""A model under audit: its plan, run folder and batch size, and its entries in the manifest."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from brinell.core.contracts import Remark
from brinell.core.model import Model
from brinell.core.record import Array, Records
from brinell.engine.batch_sizer import BatchSizer
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.store import rows
from brinell.store.run import NO_ROWS, Run

FAILED = "failed-samples"
"""The code of the warning that samples could not be judged."""


class AuditedModel:
    """State that all parts of one model's audit share.

    The manifest records each reduction of the batch size.
    """

    def __init__(
        self,
        plan: Plan,
        source: ModelSource,
        model: Model,
        run: Run,
        progress: Progress,
        sizer: BatchSizer | None = None,
        surrogates: tuple[Model, ...] = (),
    ) -> None:
        self.plan, self.source, self.model, self.run, self.progress = (
            plan,
            source,
            model,
            run,
            progress,
        )
        self.surrogates = surrogates
        self.rows: dict[str, Records] = {}
        """Rows of the first check and of the stages so far, by name."""
        self.sizer = sizer or BatchSizer(
            plan.request.batch_size, lambda remark: self.note("memory", [remark])
        )

    def all_rows(self) -> Records:
        """The rows of the first check and of the stages so far."""
        return rows.concatenate([NO_ROWS, *self.rows.values()])

    def load(self, ids: Array) -> Tensor:
        """Load the inputs (n, *shape) of these samples to the device of the audit."""
        return self.plan.dataset.load(ids.tolist()).to(self.plan.device)

    def short_name(self, name: str) -> str:
        """Short name of a stage; other names, such as that of the clean check, stay as they are."""
        return next((stage.short or name for stage in self.plan.stages if stage.name == name), name)

    def note(
        self, stage: str, remarks: Sequence[Remark], legend: Mapping[str, Any] | None = None
    ) -> None:
        """Record remarks and the legend in the manifest, each code once; entries of an interrupted
        run stay.
        """
        if legend and not self.run.legend(self.source.name, stage):
            self._section("extras")[stage] = dict(legend)
            self.run.save_facts()
        if not remarks:
            return
        recorded = self._section("remarks").setdefault(stage, {})
        new = {remark.code: remark.text for remark in remarks if remark.code not in recorded}
        if new:
            recorded.update(new)
            self.run.save_facts()
        for text in new.values():
            self.progress.note(f"{self.source.name}, {self.short_name(stage)}: {text}")

    def fail(self, stage: str, sample: int, reason: str) -> None:
        """Record that a sample cannot be judged."""
        self._section("failed").setdefault(stage, {})[str(sample)] = reason
        self.run.save_facts()
        self.progress.warn(
            f"{self.source.name}, {stage}: sample {sample} cannot be judged: {reason}"
        )

    def failure_warning(self) -> dict[str, str]:
        """The warning that samples could not be judged, by its code; empty if there is none."""
        stages = {stage: samples for stage, samples in self._section("failed").items() if samples}
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

    def add_traffic(self, traffic: Mapping[str, int]) -> None:
        """Add requests to a remote model to the totals in the manifest."""
        total = self._section("traffic") if traffic else {}
        total.update({kind: total.get(kind, 0) + count for kind, count in traffic.items()})

    def keep_facts(self) -> None:
        """Record remarks of a remote model and the requests since the last call; both add up over
        sessions.
        """
        if server := self.model.info.server:
            self.note("model", server.remarks())
            self.add_traffic(dict(server.traffic()))
            self.run.save_facts()

    def _section(self, key: str) -> dict[str, Any]:
        section: dict[str, Any] = self.run.manifest.setdefault(key, {}).setdefault(
            self.source.name, {}
        )
        return section
