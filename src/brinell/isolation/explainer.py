"""The proxy of an explainer in a child process, which reaches the oracle over the pipe and nothing else."""

import torch
from torch import Tensor

from brinell.core.contracts import Domain, Oracle, Streams
from brinell.core.oracle import Batch
from brinell.core.patches import AXES
from brinell.isolation.oracle import OracleProxy, child_loss
from brinell.isolation.process import GROUP_SECONDS, PluginProcess
from brinell.isolation.proxy import IsolatedPlugin
from brinell.isolation.witness import compare


class IsolatedExplainer(IsolatedPlugin):
    """An explainer in a child process, with the members of `core.contracts.Explainer`."""

    def __call__(self, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
        """Send the inputs to the child, answer its queries, and return its maps (n, *places), checked."""
        return _explain(self._process, oracle, batch, domain, rng)

    def check(self, maps: Tensor, row: int, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> None:
        """Let the witness explain one row of a call again; raises ContractError where its map is another."""
        repeated = _explain(self.witness, oracle, batch, domain, rng)
        compare(self._process, maps[row : row + 1], repeated, float(maps.abs().max()))


def _explain(process: PluginProcess, oracle: Oracle, batch: Batch, domain: Domain, rng: Streams) -> Tensor:
    """The maps (n, *places) of a child, checked."""
    proxy, ask_loss = OracleProxy(oracle, batch, None), child_loss(process)
    frame = process.ask(
        "explain",
        {"domain": domain.to_json(), "classes": oracle.classes},
        {"x": batch.x, "y": batch.y, "keys": rng.keys},
        seconds=GROUP_SECONDS,
        reply=lambda query: proxy.answer(query, ask_loss),
    )
    maps, places = frame.arrays.get("maps"), domain.shape[-AXES[domain.kind] :]
    if maps is None or maps.shape != (len(batch), *places) or maps.dtype != torch.float32 or not maps.isfinite().all():
        shape = "nothing" if maps is None else f"{maps.dtype} of shape {tuple(maps.shape)}"
        raise process.failure(f"its maps are finite float32 of shape {(len(batch), *places)}, and it sent {shape}")
    return maps.to(batch.x.device)
