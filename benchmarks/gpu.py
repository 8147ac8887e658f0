"""The GPU: the whole frontier of a large problem, and sets for a million rows.

    python benchmarks/gpu.py                          # 1,280,000 rows × 512 features, 1,000 classes
    python benchmarks/gpu.py --rows 50000 --against-cpu   # the same on the CPU too: quality

Features are float16, scores the 64 best of 1,000 classes. Times are after start-up: each job is
run once on a small part first. The memory-bandwidth limit is what one read of the data takes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import shortlist as sl


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_280_000)
    parser.add_argument("--test-rows", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--predict-rows", type=int, default=1_000_000)
    parser.add_argument("--against-cpu", action="store_true")
    parser.add_argument("--only", nargs="*", default=["stage2", "both", "predict"])
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}")
    found: dict[str, object] = {"device": name, "torch": torch.__version__, **vars(given)}
    data = draw(given.rows + given.test_rows, given.features, given.classes, given.depth, device)
    found["bandwidth"] = bandwidth(device)
    print(f"one read and write of memory: {found['bandwidth']:.0f} GB/s")
    if "stage2" in given.only:
        found["stage 2"] = fitted(data, given, rescore=False)
    if "both" in given.only:
        found["both stages"] = fitted(data, given, rescore=True)
    if given.against_cpu:
        there = tuple(t.cpu() for t in data)
        found["stage 2, CPU"] = fitted(there, given, rescore=False)
        found["both stages, CPU"] = fitted(there, given, rescore=True)
    if "predict" in given.only:
        found["predict"] = predicted(given, device)
    if given.output is not None:
        given.output.write_text(json.dumps(found, indent=1, default=str))


def draw(
    rows: int, features: int, classes: int, depth: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, candidates, their log-probabilities, labels; the classifier knows the class means
    only roughly, so that features tell more than its scores do."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    means = 0.2 * normal(classes, features)
    rough = means + 0.1 * normal(classes, features)
    parts = []
    for start in range(0, rows, 65_536):
        count = min(65_536, rows - start)
        y = torch.randint(classes, (count,), generator=generator, device=device)
        x = means[y] + normal(count, features)
        logits = x @ rough.T - rough.square().sum(dim=1) / 2
        log_p = torch.log_softmax(0.7 * logits, dim=1)
        scores, labels = log_p.topk(depth, dim=1)
        parts.append((x.half(), labels.to(torch.int32), scores, y))
    return tuple(torch.cat(part) for part in zip(*parts, strict=True))  # type: ignore[return-value]


def fitted(
    data: tuple[Tensor, ...], given: argparse.Namespace, *, rescore: bool
) -> dict[str, object]:
    """Time of a fit, and the mean size at equal accuracy on test rows."""
    x, labels, scores, y = data
    rows = given.rows

    def model() -> sl.Shortlister:
        return sl.Shortlister(
            rescore=rescore,
            learn_sizes=True,
            calibration=None,
            max_epochs=given.epochs,
            score_type="log_proba",
        )

    def ranking(part: slice) -> sl.Ranking:
        return sl.Ranking.from_candidates(labels[part], scores[part], given.classes)

    few = slice(20_000)
    model().set_params(max_epochs=2).fit(ranking(few), y[few], x[few])
    fit, test = slice(rows), slice(rows, None)
    known = ranking(fit)
    trained = model()
    begun = now(x.device)
    trained.fit(known, y[fit], x[fit])
    seconds = now(x.device) - begun
    curve = trained.frontier(ranking(test), y[test], x[test])
    lac = sl.SplitConformal("lac", score_type="log_proba", temperature=None).fit(
        ranking(few), y[few]
    )
    plain = lac.frontier(ranking(test), y[test])
    sizes = {a: (float(curve.size_at(a)), float(plain.size_at(a))) for a in (0.8, 0.9, 0.95)}
    what = "both stages" if rescore else "stage 2"
    trainings = {k: repr(h) for k, h in trained.history_.items()}
    print(f"{what} on {x.device}, {rows:,} rows: {seconds:.2f} s   {trainings}")
    print(
        "   " + ", ".join(f"{a:.0%}: {s:.3f} labels (LAC {p:.3f})" for a, (s, p) in sizes.items())
    )
    return {"seconds": seconds, "sizes": sizes, "trainings": trainings}


def predicted(given: argparse.Namespace, device: torch.device) -> dict[str, float]:
    """Sets for many rows with a score for every class."""
    generator = torch.Generator(device).manual_seed(1)
    n, found = given.classes, {}
    shape = (given.predict_rows, n)
    logits = torch.empty(shape, dtype=torch.float16, device=device).normal_(
        0, 0.65, generator=generator
    )
    likely = torch.randint(n, (len(logits), 12), generator=generator, device=device)
    high = 6.5 + 4 * torch.empty(likely.shape, device=device).exponential_(generator=generator)
    logits.scatter_(1, likely, high.half())
    known = logits[:20_000]
    y = torch.multinomial(torch.softmax(known.float(), dim=1), 1, generator=generator)[:, 0]
    seen = logits.nbytes / 1e9
    methods = {
        "LAC": sl.SplitConformal("lac", score_type="logits"),
        "APS": sl.SplitConformal("aps", score_type="logits"),
        "Shortlister, no features": sl.Shortlister(max_epochs=3, score_type="logits"),
        "Shortlister, no features, learned sizes": sl.Shortlister(
            max_epochs=3, score_type="logits", learn_sizes=True
        ),
    }
    for name, method in methods.items():
        model = method.fit(known, y)
        model.predict_set(logits[:100_000], accuracy=0.9)
        times = []
        for _ in range(5):
            begun = now(device)
            sets = model.predict_set(logits, accuracy=0.9)
            times.append(now(device) - begun)
        best = min(times)
        found[name] = best
        print(
            f"predict_set, {name}: {1e3 * best:.1f} ms for {len(logits):,} × {n} "
            f"(mean size {sets.mean_size:.2f}; {seen / best:.0f} GB/s of scores)"
        )
    begun = now(device)
    torch.topk(logits, given.depth, dim=1)
    print(f"for comparison, torch.topk({given.depth}): {1e3 * (now(device) - begun):.1f} ms")
    return found


def bandwidth(device: torch.device) -> float:
    """Gigabytes per second of a copy."""
    a = torch.zeros(1 << 28, device=device)
    b = torch.empty_like(a)
    best = min(timed(lambda: b.copy_(a), device) for _ in range(5))
    return 2 * a.nbytes / best / 1e9


def timed(work: Callable[[], object], device: torch.device) -> float:
    begun = now(device)
    work()
    return now(device) - begun


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
