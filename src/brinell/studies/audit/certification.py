"""Proofs in addition to the attacks of an audit (`--certify`)."""

from dataclasses import replace
from pathlib import Path

from brinell.core.errors import RequestError, option
from brinell.engine.plan import Plan
from brinell.engine.request import as_many
from brinell.store.proofs import PROOFS
from brinell.studies.certify import STUDY as CERTIFY
from brinell.studies.certify import CertifyRequest
from brinell.studies.certify.run import AuditedRun, carry_out, make_plan
from brinell.studies.kit import Call


def check(call: Call, plan: Plan) -> None:
    """Refuse an audit that cannot be certified, before it begins."""
    request = plan.request
    without = {
        "dry_run": call.options.dry_run,
        "targeted": request.targeted is not None,
        "reject_class": request.reject_class is not None,
        "criterion": request.criterion is not None,
    }
    for name in (name for name, is_set in without.items() if is_set):
        raise RequestError(
            f"{option('certify')} does not go with {option(name)}: leave one of them out"
        )
    if len(plan.models) != 1:
        raise RequestError(
            f"{option('certify')} proves robustness of one model, and "
            f"{len(plan.models)} are named: audit each"
        )
    if request.norm not in ("linf", "l2"):
        raise RequestError(
            f"{option('certify')} has bounds in linf and l2, and none in "
            f"{request.norm}: leave it out"
        )
    if plan.request.eps is not None and "recommended" in plan.request.eps:
        raise RequestError(
            f"{option('certify')} needs the same budgets for all samples: name "
            f"them by {option('eps')}"
        )
    make_plan(_certification(call, plan, None))


def certify(call: Call, plan: Plan, folder: Path) -> None:
    """Certify a finished audit; the proofs lie in its folder."""
    carry_out(_certification(call, plan, folder))


def _certification(call: Call, plan: Plan, folder: Path | None) -> Call:
    """The call that certifies an audit; without its folder only the plan can be made."""
    request = plan.request
    return replace(
        call,
        study=CERTIFY,
        request=CertifyRequest(
            data=request.data,
            model=request.model[0],
            norm=request.norm,  # type: ignore[arg-type]  # checked
            eps=",".join(plan.budgets.texts),
            attack=request.attack,
            samples=as_many(request.samples, len(plan.ids)),
            seed=request.seed,
            batch_size=request.batch_size,
            device=request.device,
        ),
        options=AuditedRun(run=folder),
        out=None if folder is None else folder / PROOFS,
        begin=lambda path: None,
    )
