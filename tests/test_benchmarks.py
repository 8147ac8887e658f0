"""Tests of the benchmark scripts, which run on small data."""

from __future__ import annotations

import io
import json
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import shortlist as sl

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(script: str, *arguments: str) -> str:
    """Run a script in this process and return its output. It saves the imports of a new one."""
    path, output = BENCHMARKS / script, io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output):
        patch.syspath_prepend(str(path.parent))
        patch.setattr(sys, "argv", [script, *arguments])
        runpy.run_path(str(path), run_name="__main__")
    return output.getvalue()


def run_process(script: str, *arguments: str) -> str:
    """Run a script that starts processes or measures memory, and return its output."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_feature_file(path: Path, *sizes: int) -> sl.datasets.FeatureFile:
    """Write a small feature file, and return its content."""
    splits = sl.datasets.gaussian(sum(sizes), separation=0.3).split(*sizes)
    arrays = {}
    for name, samples in zip(("fit", "select", "test"), splits, strict=True):
        arrays |= {f"x_{name}": samples.x, f"y_{name}": samples.y}
    np.savez(path, **arrays)
    return sl.datasets.FeatureFile(*splits)


def write_candidates_file(path: Path, rows: int) -> float:
    """Write the five most probable of 1,000 classes, and return the accuracy of top-4."""
    rng = np.random.default_rng(0)
    labels = rng.permuted(np.tile(np.arange(1000), (rows, 1)), axis=1)[:, :6]
    p = rng.dirichlet(np.full(6, 0.5), size=rows)
    p = -np.sort(-p, axis=1)
    rank = np.array([rng.choice(6, p=row) for row in p])
    y = labels[np.arange(rows), rank]
    np.savez(path, labels=labels[:, :5].astype(np.int16), scores=p[:, :5], y=y.astype(np.int16))
    return float((rank < 4).mean())


def test_fit_times() -> None:
    sizes = ["--rows", "300", "--features", "8", "--classes", "5", "--test-rows", "300"]
    output = run("fit_times.py", *sizes, "--efforts", "fast", "--stage-2", "--busy")
    assert "300 rows × 8 features, 5 classes" in output
    assert "busy neighbors" in output
    table = re.findall(r"^fast +(.+?)  +([\d.]+) +([\d.]+)", output, re.MULTILINE)
    seconds = {part: (float(wall), float(cpu)) for part, wall, cpu in table}
    parts = ["vector scaling", "logistic regression", "networks", "neighbors", "pool", "stage 2"]
    assert list(seconds) == [*parts, "rest", "all"]
    assert min(seconds["stage 2"]) > 0
    for column in range(2):
        total = sum(times[column] for part, times in seconds.items() if part != "all")
        assert total == pytest.approx(seconds["all"][column], abs=0.1)


def test_selector_inputs(tmp_path: Path) -> None:
    write_feature_file(tmp_path / "small.npz", 300, 300, 300)
    output = run("selector_inputs.py", str(tmp_path / "small.npz"), "--seeds", "1", "--epochs", "5")
    for inputs in ("features", "scores", "both"):
        assert output.count(f'inputs="{inputs}"') == 2  # The points of its curve, and its sizes.
    assert "fixed top-k" in output
    assert "one threshold" in output


def test_path_against_loops() -> None:
    output = run("path_against_loops.py", "--rows", "300", "--epochs", "1", "--repeats", "1")
    assert float(output.split("ratio")[1]) > 0


def test_shortlister_against_loops() -> None:
    small = ("--rows", "300", "--epochs", "1", "--max-epochs", "2")
    output = run("shortlister_against_loops.py", *small)
    assert re.search(r"300 × 256, 1 epochs", output)
    seconds = {name: float(s) for name, s in re.findall(r"^(.+?) +([\d.]+) s", output, re.M)}
    assert list(seconds) == ["20 training loops", "stage 2", "both stages", "both, early stopping"]
    assert min(seconds.values()) > 0
    pattern = r"^(.+?) +[\d.]+ s +ratio ([\d.]+)"
    ratios = {name: float(ratio) for name, ratio in re.findall(pattern, output, re.M)}
    assert list(ratios) == ["stage 2", "both stages"]
    for name, ratio in ratios.items():
        rounding = 0.006 * (1 + ratio)
        assert seconds[name] == pytest.approx(ratio * seconds["20 training loops"], abs=rounding)


METHODS = ["Shortlister", "top-k", "LAC", "RAPS", "SAPS", "plug-in, log cost"]
PATHS = ["paper's selectors", "paper's, with scores"]
RETRAINED = ["networks, retrained", "logistic, retrained"]
QUICK = ("--epochs", "1", "--without", "APS")
Tables = dict[str, dict[str, dict[str, str]]]


def parse_tables(output: str) -> Tables:
    """Return the cells of the table of each data set, by method and column."""
    tables: Tables = {}
    for block in output.split("\n## ")[1:]:
        title, _, header, _, *lines = block.strip().splitlines()
        columns = [cell.strip() for cell in header.strip("|").split("|")][1:]
        tables[title.split(":")[0]] = {
            cells[0]: dict(zip(columns, cells[1:], strict=True))
            for cells in ([c.strip() for c in line.strip("|").split("|")] for line in lines)
        }
    return tables


def test_every_method(tmp_path: Path) -> None:
    file = write_feature_file(tmp_path / "small.npz", 300, 260, 300)
    write_candidates_file(tmp_path / "lists_top5_small.npz", 500)
    data = [str(tmp_path / name) for name in ("small.npz", "lists_top5_small.npz")]
    saved = tmp_path / "measurements.json"
    output = run("every_method.py", *data, "--seeds", "2", *QUICK, "-o", str(saved))
    tables = parse_tables(output)
    rows = json.loads(saved.read_text())
    features, candidates = tables["small"], tables["lists_top5_small"]
    assert parse_tables(run("every_method.py", str(saved))) == tables

    # Every cell is the mean and the spread of the saved measurements of two seeds.
    for name, table in tables.items():
        for method, cells in table.items():
            for column in [column for column in cells if column != "fit s"]:
                matching = [r for r in rows if (r["data"], r["method"]) == (name, method)]
                if column != "top-4":
                    matching = [r for r in matching if r["accuracy"] == float(column)]
                assert sorted(r["seed"] for r in matching) == [0, 1]
                sizes = [r["size"] for r in matching]
                assert cells[column] == f"{np.mean(sizes):.3f} ± {np.std(sizes):.3f}"
            assert float(cells["fit s"]) >= 0

    expected = [METHODS[0], *RETRAINED, *METHODS[1:], *PATHS, "Shortlister, no re-scoring"]
    assert list(features)[: len(expected)] == expected
    assert list(features["LAC"]) == ["0.9", "0.95", "0.98", "0.99", "fit s"]
    for seed in range(2):
        h = sl.LinearClassifier(max_epochs=15, random_state=seed).fit(file.fit.x, file.fit.y)
        lac = sl.SplitConformal(calibration=None)
        lac.fit(h.decision_function(file.select.x), file.select.y)
        curve = lac.frontier(h.decision_function(file.test.x), file.test.y)
        sizes = [
            r["size"] for r in rows if (r["data"], r["seed"], r["method"]) == ("small", seed, "LAC")
        ]
        assert sizes == pytest.approx(curve.size_at([0.9, 0.95, 0.98, 0.99]), rel=1e-3)

    assert list(candidates) == [*METHODS, "paper's, on scores"]
    assert list(candidates["LAC"]) == ["top-4", "fit s"]
    assert candidates["top-k"]["top-4"] == "4.000 ± 0.000"
    assert 1 < float(candidates["LAC"]["top-4"].split()[0]) < 4


def test_deferral(tmp_path: Path) -> None:
    write_feature_file(tmp_path / "small.npz", 300, 300, 300)
    small = ("--epochs", "2", "--fit-rows", "300")
    output = run("deferral.py", str(tmp_path / "small.npz"), "--seeds", "2", *small)
    rows = [line.strip("| ").split(" | ") for line in output.splitlines() if "± 0" in line]
    assert {row[0] for row in rows} == {"300"}
    costs = {(task, method): float(cost.split()[0]) for _, task, method, cost, *_ in rows}
    assert costs["top-1 + abstain at 0.05", "one member for all rows"] == 0.05
    assert 0 < costs["top-1 + abstain at 0.2", "Chow's rule"] < 0.25
    assert {method for _, method in costs} == {
        "one member for all rows",
        "Chow's rule",
        "best thresholds",
        "plug-in",
        *(f'selector, inputs="{inputs}"' for inputs in ("features", "scores", "both")),
    }


def test_deferral_thresholds_are_the_best_ones() -> None:
    """Compare the dynamic program with all pairs of boundaries."""
    module = runpy.run_path(str(BENCHMARKS / "deferral.py"))
    for seed in range(20):
        costs = np.random.default_rng(seed).random((12, 3))
        total, (i, j) = module["best_ends"](costs)
        sums = [
            costs[:a, 0].sum() + costs[a:b, 1].sum() + costs[b:, 2].sum()
            for a in range(13)
            for b in range(a, 13)
        ]
        assert total == pytest.approx(min(sums))
        assert costs[:i, 0].sum() + costs[i:j, 1].sum() + costs[j:, 2].sum() == pytest.approx(total)


def test_onnx_latency() -> None:
    size = ("--rows", "400", "--features", "8", "--classes", "5")
    output = run("onnx_latency.py", *size, "--epochs", "1", "--repeats", "2")
    assert re.search(r"8 features, 5 classes, \d opinions", output)
    assert "sizes differ in 0 of 400 rows" in output
    assert [line.split()[0] for line in output.splitlines()[3:]] == ["1", "100", "1000"]


def test_every_method_with_guarantees(tmp_path: Path) -> None:
    write_feature_file(tmp_path / "small.npz", 300, 400, 600)
    top4 = write_candidates_file(tmp_path / "lists_top5_small.npz", 1200)
    output = run("every_method.py", str(tmp_path), "--guaranteed", "--seeds", "1", *QUICK)
    tables = parse_tables(output)
    for table, column, expected in (
        (tables["small"], "0.9", 0.9),
        (tables["lists_top5_small"], "top-4", top4),
    ):
        assert set(METHODS) <= set(table)
        for method in METHODS:
            size, accuracy = (float(part.split()[0]) for part in table[method][column].split("at"))
            assert abs(accuracy - expected) < 0.06
            assert 1 < size < 10
    lac, top_k = (tables["small"][name]["0.95"].split()[0] for name in ("LAC", "top-k"))
    assert float(lac) < float(top_k)


def test_every_method_on_all_rows(tmp_path: Path) -> None:
    """Methods get the same rows, and what was measured is not measured again."""
    write_feature_file(tmp_path / "small.npz", 300, 260, 300)
    saved, rival = tmp_path / "measurements.json", "five networks + LAC"
    arguments = [str(tmp_path / "small.npz"), "tabular:iris/naive_bayes", "--rows", "all"]
    arguments += ["--seeds", "1", "--epochs", "1", "-o", str(saved), "--only"]
    run("every_method.py", *arguments, "LAC")
    first = json.loads(saved.read_text())
    text = run("every_method.py", *arguments, "LAC", "Shortlister, fast", rival)
    rows = json.loads(saved.read_text())
    assert rows[: len(first)] == first
    assert not re.search(r"^small, seed 0, LAC:", text, re.M)
    for name in ("small", "iris/naive_bayes"):
        for method in ("LAC", "Shortlister, fast", rival):
            sizes = [r["size"] for r in rows if (r["data"], r["method"]) == (name, method)]
            assert len(sizes) == 4
            assert 1 <= sizes[0] <= sizes[3]
    by_method = {
        r["method"]: r["size"] for r in rows if (r["data"], r["column"]) == ("small", "0.9")
    }
    assert f"{by_method['LAC'] / by_method[rival]:.3f} ± 0.000" in text
    assert f"{by_method['LAC']:.3f} ± 0.000" in run("every_method.py", str(saved))


def test_every_method_raises_for_an_unknown_method(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", ["every_method.py", "gaussian", "--without", "lac"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(BENCHMARKS / "every_method.py"), run_name="__main__")
    assert "invalid choice: 'lac'" in capsys.readouterr().err


def test_speed(tmp_path: Path) -> None:
    """Run two benchmarks without other libraries: results replace those of the same benchmark."""
    file = tmp_path / "results.json"
    small = ["--rows", "500", "--classes", "300", "--repeats", "1", "--without-peers"]
    alone = ["--without-neighbors", "--only", "aps-20"]
    run("speed/run.py", *small, *alone, "-o", str(file))
    saved = json.loads(file.read_text())
    saved["benchmarks"] = {"lac-1": [{"library": "an old result"}], **saved["benchmarks"]}
    file.write_text(json.dumps(saved))
    output = run("speed/run.py", *small, "--only", "lac-1", "-o", str(file))
    results = json.loads(file.read_text())["benchmarks"]
    assert list(results) == ["lac-1", "aps-20"]
    own = [("shortlist", ""), ("shortlist", "temperature=None")]
    for name, coverage in (("lac-1", 0.9), ("aps-20", 0.745)):
        found = [(result["library"], result["label"]) for result in results[name]]
        assert found == (own if name == "aps-20" else [*own, ("numpy", "")])
        for result in results[name]:
            assert ("busy" in result) == (name == "lac-1")
            for measured in (result, result.get("busy", result)):
                total = measured["calibrate"] + measured["predict"]
                assert measured["seconds"] == pytest.approx(total, rel=1e-3)
            assert abs(result["coverage"] - coverage) < 0.1
            assert f"| {result['mean_size']:.2f} | {result['coverage']:.3f} |" in output


def test_speed_neighbors_end_with_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "speed"))
    with import_module("neighbors").neighbors(2) as processes:
        assert [process.poll() for process in processes] == [None, None]
    assert all(process.poll() is not None for process in processes)


@pytest.mark.parametrize("score", ["lac", "aps"])
def test_plain_numpy_predicts_the_same_sets(monkeypatch: pytest.MonkeyPatch, score: str) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "speed"))
    draw, plain = import_module("random_scores").draw, import_module("plain_numpy").PlainNumPy
    (scores, y), (new, new_y) = draw(3000, 20, seed=0), draw(3000, 20, seed=1)
    method = plain(score, "proba")
    method.calibrate(scores, y)
    (sets,) = method.predict(new, [0.9])
    sizes, hits = method.sizes_and_hits(sets, new_y)
    expected = (
        sl.SplitConformal(score, temperature=None).fit(scores, y).predict_set(new, accuracy=0.9)
    )
    assert np.mean(sizes != expected.sizes) < 0.01
    assert np.mean(hits != expected.contains(new_y)) < 0.01


def test_speed_growth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "speed"))
    growth = import_module("growth")
    results = [
        {"library": "shortlist", "label": "lac, rows", "rows": m, "seconds": m**2.0, "memory": 7.0}
        for m in (30, 10, 20)
    ]
    points = growth.curves(results)["rows"]["lac"]
    assert [point["rows"] for point in points] == [10, 20, 30]
    assert growth.slope(points, "rows", "seconds") == pytest.approx(2)
    assert growth.slope(points, "rows", "memory") == pytest.approx(0)
    growth.draw_growth(results, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 1000


def test_speed_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "speed"))
    table = import_module("table")
    own = {"library": "shortlist", "seconds": 2.0, "memory": 10.0, "busy": {"seconds": 5.0}}
    slow = {"library": "mapie", "seconds": 30.0, "memory": 900.0, "busy": {"seconds": 9.0}}
    fast = {"library": "torchcp", "seconds": 6.0, "memory": 800.0, "fewer_rows": 10.0}
    fast |= {"busy": {"seconds": 20.0}}
    numpy = {"library": "numpy", "label": "", "seconds": 1.0, "memory": 5.0}
    plain = {"library": "shortlist", "label": "temperature=None", "seconds": 1.5, "memory": 9.0}
    summary = table.summary_table({"benchmarks": {"lac-1": [own, plain, numpy, slow, fast]}})
    alternative = "1.00 s | TorchCP, 6.00 s (busy 20.00 s) (10× fewer rows)"
    assert summary.splitlines()[2:] == [
        f"| LAC, one level | 2.00 s (busy 5.00 s) | {alternative} | 3× | 1.8× | 10 MB, 800 MB |",
        f"| LAC, one level, `temperature=None` | 1.50 s | {alternative} | 4× |  | 9 MB, 800 MB |",
    ]
    sets = {"new_rows": 10_000, "coverage": 0.9, "mean_size": 4.0}
    assert table.has_similar_sets(sets, {**sets, "coverage": 0.91})
    assert not table.has_similar_sets(sets, {**sets, "coverage": 0.8})
    assert not table.has_similar_sets(sets, {**sets, "mean_size": 8.0})
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    for _ in range(2):
        table.paste(page, summary)
    expected = f"before\n<!-- bench -->\n{summary}\n<!-- /bench -->\nafter\n"
    assert page.read_text() == expected


def test_the_summary_of_the_results_is_in_the_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "speed"))
    table = import_module("table")
    summary = table.summary_table(json.loads((BENCHMARKS / "speed/results.json").read_text()))
    for page in table.PAGES:
        assert f"<!-- bench -->\n{summary}\n<!-- /bench -->" in page.read_text()


def test_speed_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the functions of the worker in this process."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "speed"))
    worker = import_module("worker")
    for method in ("aps", "shortlister"):
        result = worker.predict_set(method, rows=50, classes=10)
        assert result["seconds"] > 0
        assert 1 <= result["mean_size"] <= 10
    assert worker.selector(members=2, rows=600, classes=10)["seconds"] > 0
    assert worker.import_time("import shortlist")["seconds"] >= 0


def test_speed_parses_the_output_of_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "speed"))
    tasks = import_module("tasks")
    (path,) = tasks.parse_path("path   1.50 s   20 loops   6.00 s   ratio 4.00")
    assert (path["seconds"], path["loops"]) == (1.5, 6.0)
    output = "20 training loops 9.00 s\nstage 2 1.00 s\nboth stages 3.00 s"
    stages = tasks.parse_shortlister(output)
    assert [(result["seconds"], result["loops"]) for result in stages] == [(1.0, 9.0), (3.0, 9.0)]
    onnx, python = tasks.parse_latency("   1      0.250 ms      2.000 ms     8.0\n")
    assert (onnx["label"], onnx["seconds"]) == ("1 rows, onnxruntime", 0.00025)
    assert (python["label"], python["seconds"]) == ("1 rows, predict_set", 0.002)


def test_gpu_runs_on_a_cpu(tmp_path: Path) -> None:
    small = ["--rows", "1200", "--test-rows", "500", "--features", "8", "--classes", "20"]
    small += ["--depth", "6", "--epochs", "1", "--predict-rows", "21000"]
    output = run("gpu.py", *small, "--output", str(tmp_path / "results.json"))
    assert re.search(r"^both stages on \w+(:0)?, 1,200 rows: [\d.]+ s", output, re.MULTILINE)
    results = json.loads((tmp_path / "results.json").read_text())
    stage_2 = "Shortlister, no features, stage 2"
    assert set(results["predict"]) == {"LAC", "APS", "Shortlister, no features", stage_2}
    for sizes in results["both stages"]["sizes"].values():
        assert all(np.isnan(size) or 1 <= size <= 6 for size in sizes)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_larger_than_memory() -> None:
    small = ("--gigabytes", "0", "--fit-gigabytes", "0", "--epochs", "1", "--classes", "50")
    output = run("larger_than_memory.py", *small)
    lines = [line.rsplit(maxsplit=4) for line in output.splitlines()[2:]]
    steps = ["lac, calibrate", "lac, predict", "aps, calibrate", "aps, predict", "Shortlister, fit"]
    assert [line[0] for line in lines] == steps
    for _, gigabytes, seconds, speed, memory in lines:
        assert 0 <= float(gigabytes) < 0.01
        assert float(seconds) >= 0
        assert float(speed) > 0
        assert float(memory) < 1000


def test_stress() -> None:
    output = run_process("stress.py", "--seconds", "2", "--threads", "3", "--processes", "2")
    assert "3 threads and 2 processes, 2 s" in output
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+) \| ([\d,]+) \|$", output, re.M)
    done = {name: int(count.replace(",", "")) for name, count, _ in rows}
    assert all(errors == "0" for _, _, errors in rows)
    for name in ("save, shared folder", "load, shared folder", "predict", "check at the end"):
        assert done[name] > 0
    assert done["all"] == sum(count for name, count in done.items() if name != "all")


def test_cluster(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    file = tmp_path / "results.json"
    small = ("--rows", "60000", "--few-rows", "30000", "--workers", "1", "-o", str(file))
    output = run_process("cluster.py", "--folder", str(tmp_path), *small)
    results = json.loads(file.read_text())
    assert results["rows"] == 60_000
    assert results["share of one process"] > 0
    for name in ("calibrate", "predict, one process", "predict, one worker", "predict"):
        assert f"{name}: {results[name]['seconds']:.1f} s" in output
    # The worker processes were found.
    assert any(results[name]["memory"] for name in ("calibrate", "predict"))
    assert "60,000 sets in" in output


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
