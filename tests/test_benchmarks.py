"""The benchmark scripts run, on small data, and print what they say they print."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import shortlist as sl

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def feature_file(path: Path, *sizes: int) -> sl.datasets.FeatureFile:
    """A small feature file, written and as it is."""
    parts = sl.datasets.gaussian(sum(sizes), separation=0.3).split(*sizes)
    arrays = {}
    for name, part in zip(("fit", "select", "test"), parts, strict=True):
        arrays |= {f"x_{name}": part.x, f"y_{name}": part.y}
    np.savez(path, **arrays)
    return sl.datasets.FeatureFile(*parts)


def candidates_file(path: Path, rows: int) -> float:
    """The five best of 1,000 classes, with probabilities that are right; the accuracy of top-4."""
    rng = np.random.default_rng(0)
    labels = rng.permuted(np.tile(np.arange(1000), (rows, 1)), axis=1)[:, :6]
    p = rng.dirichlet(np.full(6, 0.5), size=rows)
    p = -np.sort(-p, axis=1)
    at = np.array([rng.choice(6, p=row) for row in p])
    y = labels[np.arange(rows), at]
    np.savez(path, labels=labels[:, :5].astype(np.int16), scores=p[:, :5], y=y.astype(np.int16))
    return float((at < 4).mean())


def test_selector_inputs(tmp_path: Path) -> None:
    feature_file(tmp_path / "small.npz", 300, 300, 300)
    printed = run("selector_inputs.py", str(tmp_path / "small.npz"), "--seeds", "1")
    for inputs in ("features", "scores", "both"):
        assert printed.count(f'inputs="{inputs}"') == 2  # its points, and its sizes
    assert "fixed top-k" in printed
    assert "one threshold" in printed


def test_path_against_loops() -> None:
    printed = run("path_against_loops.py", "--rows", "300", "--epochs", "1", "--repeats", "1")
    assert float(printed.split("ratio")[1]) > 0


def test_shortlister_against_loops() -> None:
    few = ("--rows", "300", "--epochs", "1", "--most-epochs", "2")
    printed = run("shortlister_against_loops.py", *few)
    assert re.search(r"300 × 256, 1 epochs", printed)
    spent = {name: float(s) for name, s in re.findall(r"^(.+?) +([\d.]+) s", printed, re.M)}
    assert list(spent) == ["20 plain loops", "stage 2", "both stages", "both, early stopping"]
    assert min(spent.values()) > 0
    pattern = r"^(.+?) +[\d.]+ s +ratio ([\d.]+)"
    ratios = {name: float(ratio) for name, ratio in re.findall(pattern, printed, re.M)}
    assert list(ratios) == ["stage 2", "both stages"]
    for name, ratio in ratios.items():
        rounding = 0.006 * (1 + ratio)
        assert spent[name] == pytest.approx(ratio * spent["20 plain loops"], abs=rounding)


METHODS = ["Shortlister", "top-k", "LAC", "RAPS", "SAPS", "plug-in, log cost", "paper's selectors"]
QUICK = ("--epochs", "1", "--without", "APS")
Tables = dict[str, dict[str, dict[str, str]]]


def tables(printed: str) -> Tables:
    """The cells of each data set's table, by method and column."""
    found: Tables = {}
    for block in printed.split("\n## ")[1:]:
        title, _, head, _, *lines = block.strip().splitlines()
        columns = [cell.strip() for cell in head.strip("|").split("|")][1:]
        found[title.split(":")[0]] = {
            cells[0]: dict(zip(columns, cells[1:], strict=True))
            for cells in ([c.strip() for c in line.strip("|").split("|")] for line in lines)
        }
    return found


def test_every_method(tmp_path: Path) -> None:
    file = feature_file(tmp_path / "small.npz", 300, 260, 300)
    candidates_file(tmp_path / "lists_top5_small.npz", 500)
    data = [str(tmp_path / name) for name in ("small.npz", "lists_top5_small.npz")]
    output = tmp_path / "all.json"
    printed = tables(run("every_method.py", *data, "--seeds", "2", *QUICK, "-o", str(output)))
    everything = json.loads(output.read_text())
    features, lists = printed["small"], printed["lists_top5_small"]

    # Every cell is the mean and the spread of what was written down for two seeds.
    for name, table in printed.items():
        for method, cells in table.items():
            for at in [column for column in cells if column != "fit s"]:
                ones = [e for e in everything if (e["data"], e["method"]) == (name, method)]
                ones = ones if at == "top-4" else [e for e in ones if e["accuracy"] == float(at)]
                assert sorted(e["seed"] for e in ones) == [0, 1]
                sizes = [e["size"] for e in ones]
                assert cells[at] == f"{np.mean(sizes):.3f} ± {np.std(sizes):.3f}"
            assert float(cells["fit s"]) >= 0

    assert list(features)[: len(METHODS) + 1] == [*METHODS, "Shortlister, no re-scoring"]
    assert list(features["LAC"]) == ["0.9", "0.95", "0.98", "0.99", "fit s"]
    for seed in range(2):
        h = sl.LinearClassifier(max_epochs=15, random_state=seed).fit(file.fit.x, file.fit.y)
        lac = sl.SplitConformal(calibration=None)
        lac.fit(h.decision_function(file.select.x), file.select.y)
        curve = lac.frontier(h.decision_function(file.test.x), file.test.y)
        written = [
            e["size"]
            for e in everything
            if (e["data"], e["seed"], e["method"]) == ("small", seed, "LAC")
        ]
        assert written == pytest.approx(curve.size_at([0.9, 0.95, 0.98, 0.99]), rel=1e-3)

    assert list(lists) == METHODS
    assert list(lists["LAC"]) == ["top-4", "fit s"]
    assert lists["top-k"]["top-4"] == "4.000 ± 0.000"
    assert 1 < float(lists["LAC"]["top-4"].split()[0]) < 4


def test_onnx_latency() -> None:
    small = [
        "--rows",
        "400",
        "--features",
        "8",
        "--classes",
        "5",
        "--epochs",
        "1",
        "--repeats",
        "2",
    ]
    printed = run("onnx_latency.py", *small)
    assert "8 features, 5 classes, 300 neighbours" in printed
    assert "sizes differ in 0 of 400 rows" in printed
    assert [line.split()[0] for line in printed.splitlines()[3:]] == ["1", "100", "1000"]


def test_every_method_with_guarantees(tmp_path: Path) -> None:
    feature_file(tmp_path / "small.npz", 300, 400, 600)
    top4 = candidates_file(tmp_path / "lists_top5_small.npz", 1200)
    printed = tables(run("every_method.py", str(tmp_path), "--guaranteed", "--seeds", "1", *QUICK))
    for table, column, wanted in (
        (printed["small"], "0.9", 0.9),
        (printed["lists_top5_small"], "top-4", top4),
    ):
        assert set(METHODS) <= set(table)
        for method in METHODS[:-1]:
            size, accuracy = (float(part.split()[0]) for part in table[method][column].split("at"))
            assert abs(accuracy - wanted) < 0.06
            assert 1 < size < 10
    lac, top_k = (printed["small"][name]["0.95"].split()[0] for name in ("LAC", "top-k"))
    assert float(lac) < float(top_k)


def test_every_method_refuses_a_method_that_it_does_not_know(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["every_method.py", "gaussian", "--without", "lac"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(BENCHMARKS / "every_method.py"), run_name="__main__")
    assert "invalid choice: 'lac'" in capsys.readouterr().err


def test_speed(tmp_path: Path) -> None:
    """This library alone, a few works, as small as can be."""
    output = tmp_path / "results.json"
    few = ["--rows", "500", "--classes", "300", "--repeats", "1", "--without-peers"]
    works = ["--only", "lac-1", "aps-20"]
    printed = run("speed/run.py", *few, *works, "-o", str(output))
    found = json.loads(output.read_text())["works"]
    assert list(found) == works[1:]
    for name, coverage in (("lac-1", 0.9), ("aps-20", 0.745)):
        (ours,) = found[name]
        assert ours["library"] == "shortlist"
        assert ours["seconds"] == pytest.approx(ours["calibrate"] + ours["predict"], rel=1e-3)
        assert abs(ours["coverage"] - coverage) < 0.1
        assert f"| {ours['mean_size']:.2f} | {ours['coverage']:.3f} |" in printed
    run("speed/run.py", *few, "--only", "lac-1", "-o", str(output))
    assert list(json.loads(output.read_text())["works"]) == works[1:]  # what was there stays


def test_speed_slopes_and_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "speed"))
    growth, table = (import_module(name) for name in ("growth", "table"))
    squares = [
        {"library": "shortlist", "label": "lac, rows", "rows": m, "seconds": m**2.0, "memory": 7.0}
        for m in (30, 10, 20)
    ]
    points = growth.curves(squares)["rows"]["lac"]
    assert [one["rows"] for one in points] == [10, 20, 30]
    assert growth.slope(points, "rows", "seconds") == pytest.approx(2)
    assert growth.slope(points, "rows", "memory") == pytest.approx(0)
    growth.draw_growth(squares, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 1000

    ours = {"library": "shortlist", "seconds": 2.0, "memory": 10.0}
    slow = {"library": "mapie", "seconds": 30.0, "memory": 900.0}
    fast = {"library": "torchcp", "seconds": 6.0, "memory": 800.0, "fewer_rows": 10.0}
    made = table.essential({"works": {"lac-1": [ours, slow, fast]}})
    row = "| LAC, one level | 2.00 s | TorchCP, 6.00 s (10× fewer rows) | 3× | 10 MB, 800 MB |"
    assert made.splitlines()[2:] == [row]
    sets = {"new_rows": 10_000, "coverage": 0.9, "mean_size": 4.0}
    for other, same in (({"coverage": 0.91}, True), ({"coverage": 0.8}, False)):
        assert table.alike(sets, sets | other) is same
    assert not table.alike(sets, sets | {"mean_size": 8.0})
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    for _ in range(2):
        table.paste(page, made)
    assert page.read_text() == f"before\n<!-- bench -->\n{made}\n<!-- /bench -->\nafter\n"


def test_speed_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the runner's other processes measure, here in one."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "speed"))
    worker, works = (import_module(name) for name in ("worker", "works"))
    for method in ("aps", "shortlister"):
        found = worker.predicting(method, rows=50, classes=10)
        assert found["seconds"] > 0
        assert 1 <= found["mean_size"] <= 10
    found = worker.selecting(members=2, rows=600, classes=10)
    assert found["seconds"] > 0
    assert worker.importing("import shortlist")["seconds"] >= 0

    (path,) = works.path_times("path   1.50 s   20 loops   6.00 s   ratio 4.00")
    assert (path["seconds"], path["loops"]) == (1.5, 6.0)
    stages = works.shortlister_times("20 plain loops 9.00 s\nstage 2 1.00 s\nboth stages 3.00 s")
    assert [(one["seconds"], one["loops"]) for one in stages] == [(1.0, 9.0), (3.0, 9.0)]
    one, more = works.latencies("   1      0.250 ms      2.000 ms     8.0\n")
    assert (one["label"], one["seconds"]) == ("1 rows, onnxruntime", 0.00025)
    assert (more["label"], more["seconds"]) == ("1 rows, predict_set", 0.002)


def test_gpu_runs_where_there_is_none(tmp_path: Path) -> None:
    small = ["--rows", "1200", "--test-rows", "500", "--features", "8", "--classes", "20"]
    small += ["--depth", "6", "--epochs", "1", "--predict-rows", "21000"]
    printed = run("gpu.py", *small, "--output", str(tmp_path / "found.json"))
    assert re.search(r"^both stages on \w+(:0)?, 1,200 rows: [\d.]+ s", printed, re.MULTILINE)
    found = json.loads((tmp_path / "found.json").read_text())
    learned = "Shortlister, no features, learned sizes"
    assert set(found["predict"]) == {"LAC", "APS", "Shortlister, no features", learned}
    for sizes in found["both stages"]["sizes"].values():
        assert all(np.isnan(size) or 1 <= size <= 6 for size in sizes)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_larger_than_memory() -> None:
    printed = run(
        "larger_than_memory.py", "--gigabytes", "0", "--fit-gigabytes", "0", "--epochs", "1"
    )
    lines = [line.rsplit(maxsplit=4) for line in printed.splitlines()[2:]]
    steps = ["lac, calibrate", "lac, predict", "aps, calibrate", "aps, predict", "Shortlister, fit"]
    assert [line[0] for line in lines] == steps
    for _, gigabytes, seconds, speed, memory in lines:
        assert 0.04 <= float(gigabytes) < 0.05
        assert float(seconds) >= 0
        assert float(speed) > 0
        assert float(memory) < 1000


def test_stress() -> None:
    printed = run("stress.py", "--seconds", "4", "--threads", "3", "--processes", "2")
    assert "3 threads and 2 processes, 4 s" in printed
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+) \| ([\d,]+) \|$", printed, re.M)
    done = {kind: int(count.replace(",", "")) for kind, count, _ in rows}
    assert all(errors == "0" for _, _, errors in rows)
    for kind in ("save, shared folder", "load, shared folder", "predict", "check at the end"):
        assert done[kind] > 0
    assert done["all"] == sum(count for kind, count in done.items() if kind != "all")


def test_cluster(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    output = tmp_path / "found.json"
    few = ("--rows", "60000", "--plain-rows", "30000", "--workers", "1", "-o", str(output))
    printed = run("cluster.py", "--folder", str(tmp_path), *few)
    found = json.loads(output.read_text())
    assert found["rows"] == 60_000
    assert found["share of plain"] > 0
    for work in ("calibrate", "predict, plain", "predict, one worker", "predict"):
        assert f"{work}: {found[work]['seconds']:.1f} s" in printed
    assert "60,000 sets in" in printed


def test_reliability() -> None:
    """Run some methods twice on one distribution; so few repetitions only test the script."""
    module = runpy.run_path(str(BENCHMARKS / "reliability.py"))
    methods, cell = module["METHODS"], module["cell"]
    rows = module["DISTRIBUTIONS"]["ties between rows"](np.random.default_rng(0), 2400)
    fit, pool = rows[slice(0, 300)], rows[slice(300, None)]
    for name in ("lac", "raps, randomized", "Shortlister, stage 2", "lac, delta = 0.1"):
        accuracies = dict(module["repeat"](methods[name], fit, pool, (60,), 2))
        assert len(accuracies[60]) == 2
        assert min(accuracies[60]) > 0.6
        assert cell(methods[name], accuracies[60])[0]
    text, valid = cell(methods["lac"], [0.8, 0.81, 0.79])
    assert text.startswith("0.8000 ±")
    assert not valid
    assert cell(methods["lac"], []) == ("too few rows", True)
