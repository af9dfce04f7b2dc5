"""A model while it is audited: its plan, run folder and batches, and what the manifest keeps of it beside rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from brinell.core.contracts import Remark
from brinell.core.model import Model
from brinell.core.record import Array
from brinell.engine.peers import Alone, Peers, ShardReport
from brinell.engine.plan import ModelSource, Plan
from brinell.engine.progress import Progress
from brinell.engine.room import Room
from brinell.store.run import Run

FAILED = "failed-samples"
"""The code of the warning that samples could not be judged."""


class AuditedModel:
    """What all parts of one model's audit share.

    `peers` are other processes that work on the same run, `room` is how many inputs the model is shown at once; by default the
    manifest keeps where memory was short.
    """

    def __init__(
        self,
        plan: Plan,
        source: ModelSource,
        model: Model,
        run: Run,
        progress: Progress,
        peers: Peers | None = None,
        room: Room | None = None,
    ) -> None:
        self.plan, self.source, self.model, self.run, self.progress = plan, source, model, run, progress
        self.peers: Peers = peers or Alone()
        self.room = room or Room(plan.request.batch_size, lambda remark: self.note("memory", [remark]))

    def load(self, ids: Array) -> Tensor:
        """(n, *shape): the inputs of these samples, on the device of the audit."""
        return self.plan.dataset.load(ids.tolist()).to(self.plan.device)

    def short_name(self, of: str) -> str:
        """What people call a stage; the first check and the like keep their names."""
        return next((stage.short or of for stage in self.plan.stages if stage.name == of), of)

    def note(self, of: str, remarks: Sequence[Remark], legend: Mapping[str, Any] | None = None) -> None:
        """Keep what an attack, or the model, says of how it went, the first time of each; what a stopped run kept stays."""
        if legend and not self.run.legend(self.source.name, of):
            self._kept("extras")[of] = dict(legend)
            self.run.save_manifest()
        if not remarks:
            return
        kept = self._kept("remarks").setdefault(of, {})
        new = {remark.code: remark.text for remark in remarks if remark.code not in kept}
        if new:
            kept.update(new)
            self.run.save_manifest()
        for text in new.values():
            self.progress.note(f"{self.source.name}, {self.short_name(of)}: {text}")

    def failures(self, of: str) -> tuple[dict[str, str], Callable[[int, str], None]]:
        """Where samples are kept that could not be judged in a shard of a stage, and what to call with each and the reason."""
        failed: dict[str, str] = {}

        def fail(sample: int, why: str) -> None:
            failed[str(sample)] = why
            self._fail(of, sample, why)

        return failed, fail

    def _fail(self, of: str, sample: int, why: str) -> None:
        self._kept("failed").setdefault(of, {})[str(sample)] = why
        self.run.save_manifest()
        self.progress.warn(f"{self.source.name}, {of}: sample {sample} cannot be judged: {why}")

    def failure_warning(self) -> dict[str, str]:
        """The sign that samples could not be judged, if any."""
        stages = {stage: samples for stage, samples in self._kept("failed").items() if samples}
        if not stages:
            return {}
        first = next(iter(stages))
        sample, why = next(iter(stages[first].items()))
        count = len({failed for samples in stages.values() for failed in samples})
        text = f"{count} of {len(self.plan.ids)} samples could not be judged; the first: {sample} in {first}: {why}"
        return {FAILED: text}

    def count_traffic(self) -> dict[str, int]:
        """What a model on another machine has counted since it was last asked, which is added to the manifest's."""
        server = self.model.info.server
        traffic = {} if server is None else dict(server.traffic())
        if traffic:
            self._add_traffic(traffic)
        return traffic

    def _add_traffic(self, traffic: Mapping[str, int]) -> None:
        total = self._kept("traffic")
        total.update({kind: total.get(kind, 0) + count for kind, count in traffic.items()})

    def keep_server(self) -> None:
        """Keep what a model on another machine has to say: how it was asked, and how much, which adds up when a run goes on."""
        if self.model.info.server is not None:
            self.note("model", self.model.info.server.remarks())
            if self.count_traffic():
                self.run.save_manifest()

    def take_report(self, of: str, report: ShardReport) -> None:
        """Keep what another process says of a shard of a stage."""
        self.note(of, report.remarks, report.legend)
        if report.traffic:
            self._add_traffic(report.traffic)
        for sample, why in report.failed.items():
            self._fail(of, int(sample), why)

    def _kept(self, what: str) -> dict[str, Any]:
        """What the manifest keeps of the model under a name."""
        kept: dict[str, Any] = self.run.manifest.setdefault(what, {}).setdefault(self.source.name, {})
        return kept
