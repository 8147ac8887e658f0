"""Measure fits and predictions of large problems on a GPU.

    python benchmarks/gpu.py                          # 1,280,000 rows × 512 features, 1,000 classes
    python benchmarks/gpu.py --rows 50000 --against-cpu   # also on the CPU, to compare mean sizes

The features are float16, and the scores are the 64 best of 1,000 classes. Start-up is not measured:
each task runs once before. The memory bandwidth is that of a copy.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import shortlist as sl

TASKS = ("stage2", "both", "predict")


def main() -> None:
    """Run the requested tasks and print their results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_280_000)
    parser.add_argument("--test-rows", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--predict-rows", type=int, default=1_000_000)
    parser.add_argument("--against-cpu", action="store_true", help="fit on the CPU too")
    parser.add_argument("--only", nargs="*", choices=TASKS, default=TASKS)
    parser.add_argument("--output", type=Path, help="write the results to a JSON file")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}")
    rows = options.rows + options.test_rows
    data = draw(rows, options.features, options.classes, options.depth, device)
    gigabytes_per_second = bandwidth(device)
    print(f"memory bandwidth: {gigabytes_per_second:.0f} GB/s")
    results: dict[str, object] = {
        "device": name,
        "torch": torch.__version__,
        **vars(options),
        "bandwidth": gigabytes_per_second,
    }
    if "stage2" in options.only:
        results["stage 2"] = measure_fit(data, options, rescore=False)
    if "both" in options.only:
        results["both stages"] = measure_fit(data, options, rescore=True)
    if options.against_cpu:
        data_on_cpu = tuple(tensor.cpu() for tensor in data)
        results["stage 2, CPU"] = measure_fit(data_on_cpu, options, rescore=False)
        results["both stages, CPU"] = measure_fit(data_on_cpu, options, rescore=True)
    if "predict" in options.only:
        results["predict"] = measure_predictions(options, device)
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=1, default=str))


def draw(
    rows: int, features: int, classes: int, depth: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw features, candidates, their log-probabilities and labels.

    The classifier has inexact class means, so that the features have additional information.
    """
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    means = 0.2 * normal(classes, features)
    inexact_means = means + 0.1 * normal(classes, features)
    blocks = []
    for start in range(0, rows, 65_536):
        count = min(65_536, rows - start)
        y = torch.randint(classes, (count,), generator=generator, device=device)
        x = means[y] + normal(count, features)
        logits = x @ inexact_means.T - inexact_means.square().sum(dim=1) / 2
        log_p = torch.log_softmax(0.7 * logits, dim=1)
        scores, labels = log_p.topk(depth, dim=1)
        blocks.append((x.half(), labels.to(torch.int32), scores, y))
    return tuple(torch.cat(column) for column in zip(*blocks, strict=True))  # type: ignore[return-value]


def measure_fit(
    data: tuple[Tensor, ...], options: argparse.Namespace, *, rescore: bool
) -> dict[str, object]:
    """Measure the time of a fit, and the mean size at equal accuracy on test rows."""
    x, labels, scores, y = data
    rows = options.rows

    def create_model() -> sl.Shortlister:
        return sl.Shortlister(
            rescore=rescore,
            learn_sizes=True,
            calibration=None,
            max_epochs=options.epochs,
            score_type="log_proba",
        )

    def ranking(part: slice) -> sl.Ranking:
        return sl.Ranking.from_candidates(labels[part], scores[part], options.classes)

    few, fit, test = slice(20_000), slice(rows), slice(rows, None)
    create_model().set_params(max_epochs=2).fit(ranking(few), y[few], x[few])
    fit_ranking = ranking(fit)
    model = create_model()
    seconds = measure_seconds(lambda: model.fit(fit_ranking, y[fit], x[fit]), x.device)
    curve = model.frontier(ranking(test), y[test], x[test])
    lac = sl.SplitConformal("lac", score_type="log_proba", temperature=None)
    lac_curve = lac.fit(ranking(few), y[few]).frontier(ranking(test), y[test])
    sizes = {a: (float(curve.size_at(a)), float(lac_curve.size_at(a))) for a in (0.8, 0.9, 0.95)}
    stages = "both stages" if rescore else "stage 2"
    histories = {stage: repr(history) for stage, history in model.history_.items()}
    print(f"{stages} on {x.device}, {rows:,} rows: {seconds:.2f} s   {histories}")
    texts = [f"{a:.0%}: {size:.3f} labels (LAC {lac:.3f})" for a, (size, lac) in sizes.items()]
    print("   " + ", ".join(texts))
    return {"seconds": seconds, "sizes": sizes, "histories": histories}


def measure_predictions(options: argparse.Namespace, device: torch.device) -> dict[str, float]:
    """Measure the time of `predict_set` for many rows with a score for every class."""
    n = options.classes
    logits, y = draw_logits(options.predict_rows, n, device)
    methods = {
        "LAC": sl.SplitConformal("lac", score_type="logits"),
        "APS": sl.SplitConformal("aps", score_type="logits"),
        "Shortlister, no features": sl.Shortlister(max_epochs=3, score_type="logits"),
        "Shortlister, no features, stage 2": sl.Shortlister(
            max_epochs=3, score_type="logits", learn_sizes=True
        ),
    }
    results = {}
    for name, method in methods.items():
        model = method.fit(logits[: len(y)], y)
        predict = partial(model.predict_set, logits, accuracy=0.9)
        mean_size = predict().mean_size
        results[name] = seconds = min(measure_seconds(predict, device) for _ in range(5))
        print(
            f"predict_set, {name}: {1e3 * seconds:.1f} ms for {len(logits):,} × {n} "
            f"(mean size {mean_size:.2f}; {logits.nbytes / 1e9 / seconds:.0f} GB/s of scores)"
        )
    seconds = measure_seconds(lambda: torch.topk(logits, options.depth, dim=1), device)
    print(f"for comparison, torch.topk({options.depth}): {1e3 * seconds:.1f} ms")
    return results


def draw_logits(rows: int, classes: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Draw float16 logits with about twelve likely classes in each row, and 20,000 labels."""
    generator = torch.Generator(device).manual_seed(1)
    logits = torch.empty((rows, classes), dtype=torch.float16, device=device)
    logits.normal_(0, 0.65, generator=generator)
    likely = torch.randint(classes, (rows, 12), generator=generator, device=device)
    high = 6.5 + 4 * torch.empty(likely.shape, device=device).exponential_(generator=generator)
    logits.scatter_(1, likely, high.half())
    p = torch.softmax(logits[:20_000].float(), dim=1)
    return logits, torch.multinomial(p, 1, generator=generator)[:, 0]


def bandwidth(device: torch.device) -> float:
    """Return the gigabytes per second that a copy reads and writes."""
    source = torch.zeros(1 << 28, device=device)
    target = torch.empty_like(source)
    seconds = min(measure_seconds(lambda: target.copy_(source), device) for _ in range(5))
    return 2 * source.nbytes / seconds / 1e9


def measure_seconds(function: Callable[[], object], device: torch.device) -> float:
    """Return the wall-clock time of a function, including its work on the GPU."""
    start = synchronized_time(device)
    function()
    return synchronized_time(device) - start


def synchronized_time(device: torch.device) -> float:
    """Return the time after all work on the GPU has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
