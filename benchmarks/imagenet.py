"""RLAB on ImageNet photographs at 224 x 224 without a limit on the distance, and the memory that it takes.

    python benchmarks/imagenet.py [--networks mcunet_144 ...] [--patches 8 32] [--photographs 8] [--queries 300]
    python benchmarks/imagenet.py --memory 1 [--photographs 8 32] [--networks mcunet_144] [--queries 40]

Each line runs in a separate process, on the first photographs that the network gets right; its peak is the largest resident set
as the kernel counts it. Queries count as everywhere: one photograph shown to the network, the first check included, failures as
infinity. L2 is the median over the fooled after clean-up. Seconds are the processor's. With --memory nothing can be fooled (the
budget is next to nothing), so that every slot stays in use until the end, and a first line shows the same photographs once, in
batches as large, and takes nothing else.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import measure
import torch
from black_box import Bench
from memory import MIB
from rlab.common import fight
from rlab.truth import Photographs

NETWORKS = ("mcunet_144", "squeezenet1_0", "mobilenet_v1", "mobilenet_v2")
BATCH = 256
"""As many as the ledger shows to a network at once."""
FREE, SMALL = 1e3, 1e-3
"""L2 budgets beyond every distortion, and below any."""


def bench_of(name: str, photographs: int) -> Bench:
    """A network of the shared data with the first photographs that it gets right."""
    subject = Photographs(
        name=f"ImageNet {name}",
        factory=f"imagenet.py:{name}",
        weights=f"imagenet_weights/{name}.safetensors",
        data="imagenet_samples",
        shape=(3, 224, 224),
        eps=FREE,
        eps_text=str(FREE),
    )
    module = subject.module()
    return Bench(subject, module, *subject.samples(photographs, module))


def cell(name: str, patch: int, photographs: int, queries: int, eps: float, distortions: str) -> dict[str, Any]:
    """One line, in this process. Patch 0 shows the photographs and does nothing else."""
    bench = bench_of(name, photographs)
    if not patch:
        with torch.no_grad():
            for part in bench.x.split(BATCH):
                bench.module(part)
        return {}
    outcome = fight(bench, f"rlab?policy=default&patch={patch}&distortions={distortions}", eps, queries, 0)
    return {
        "fooled": int(outcome.queries.isfinite().sum()),
        "median": outcome.median(),
        "queries": statistics.fmean(outcome.total_queries.tolist()),
        "l2": outcome.of_fooled(outcome.l2),
        "pixels": outcome.of_fooled(outcome.pixels),
        "seconds": outcome.seconds / photographs,
    }


def run_in_process(options: argparse.Namespace, **settings: Any) -> tuple[dict[str, Any], float]:
    """Report of one cell from a separate process, and its peak memory in MiB."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as answer, tempfile.TemporaryFile("w+") as log:
        line = [
            sys.executable,
            __file__,
            "--threads",
            str(options.threads),
            "--cell",
            json.dumps(settings),
            "--answer",
            answer.name,
        ]
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            raise SystemExit(f"{' '.join(line)} ended with {process.returncode}:\n{log.read()}")
        return json.load(answer), usage.ru_maxrss * 1024 / MIB


def success(options: argparse.Namespace) -> None:
    """Every network with every size of patches."""
    photographs = int(options.photographs[0])
    command = measure.command(options, "networks", "patches", "photographs", "queries", "distortions")
    title = f"RLAB on ImageNet photographs: no cap on the distance, {photographs} photographs, {options.queries} queries"
    columns = "network, patch, success, median queries, queries spent, L2, pixels changed, s per photograph, peak MiB"
    table = measure.Table(title, command, columns.split(", "))
    for name in options.networks:
        for patch in map(int, options.patches):
            report, peak = run_in_process(
                options,
                name=name,
                patch=patch,
                photographs=photographs,
                queries=options.queries,
                eps=FREE,
                distortions=options.distortions,
            )
            cells = [
                f"{report['fooled']} of {photographs}",
                f"{report['median']:.0f}",
                f"{report['queries']:.0f}",
                f"{report['l2']:.1f}",
            ]
            table.add(name, f"{patch} x {patch}", *cells, f"{report['pixels']:.2f}", f"{report['seconds']:.1f}", f"{peak:.0f}")


def peaks(options: argparse.Namespace) -> None:
    """Peak memory against the number of photographs and the size of patches."""
    command = measure.command(options, "networks", "patches", "photographs", "queries", "distortions") + " --memory 1"
    title = f"Memory of RLAB on ImageNet photographs, {options.queries} queries"
    columns = "network, photographs, patch, patches, peak MiB, beyond showing them once MiB, s per photograph"
    table = measure.Table(title, command, columns.split(", "))
    for name in options.networks:
        for photographs in map(int, options.photographs):
            settings = {
                "photographs": photographs,
                "queries": options.queries,
                "eps": SMALL,
                "distortions": options.distortions,
            }
            _, base = run_in_process(options, name=name, patch=0, **settings)
            table.add(name, photographs, "", "", f"{base:.0f}", "", "")
            for patch in map(int, options.patches):
                report, peak = run_in_process(options, name=name, patch=patch, **settings)
                count = (-(-224 // patch)) ** 2
                table.add(
                    name,
                    photographs,
                    f"{patch} x {patch}",
                    count,
                    f"{peak:.0f}",
                    f"{peak - base:.0f}",
                    f"{report['seconds']:.1f}",
                )


def main() -> None:
    """One cell, or the tables."""
    options = measure.arguments(
        __doc__ or "",
        networks=list(NETWORKS),
        patches=["8", "32"],
        photographs=["8"],
        queries=300,
        distortions="gaussian-noise",
        memory=0,
        cell="",
        answer="",
    )
    if options.cell:
        with open(options.answer, "w", encoding="utf-8") as answer:
            json.dump(cell(**json.loads(options.cell)), answer)
    elif options.memory:
        peaks(options)
    else:
        success(options)


if __name__ == "__main__":
    main()
