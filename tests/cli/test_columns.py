"""Files as people have them: other names, identifiers, text columns, groups, and bad rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import shortlist as sl
from shortlist.cli import app
from shortlist.datasets import read_rows, stream_rows

NAMES = np.array(["ant", "bee", "cat"])
DATA = sl.datasets.gaussian(500, 0.7, n_classes=3, dimension=4)
KNOWN, NEW = DATA.split(300)


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def frame(part: sl.datasets.Samples) -> pd.DataFrame:
    """Return rows as people have them: named labels, an identifier, a comment and a group."""
    scores = pd.DataFrame(part.posterior.astype(np.float64), columns=NAMES)
    n_rows = len(scores)
    scores.insert(0, "id", np.arange(n_rows) + 1000)
    scores["species"] = NAMES[part.y]
    scores["comment"] = [f"row {i}" for i in range(n_rows)]
    scores["country"] = np.where(np.arange(n_rows) % 2, "NA", "FR")
    return scores


ROLES = ["--label", "species", "--ignore", "comment", "--id", "id"]
QUICK = ["--method", "lac", "--accuracy", 0.8]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name, part in (("known", KNOWN), ("new", NEW)):
        frame(part).to_csv(folder / f"{name}.csv", index=False)
        frame(part).to_parquet(folder / f"{name}.parquet")
    words = ["fit", folder / "known.csv", "-o", folder / "model", *QUICK, *ROLES]
    run(*words, "--groups", "country")
    return folder


@pytest.mark.parametrize("source", ["csv", "parquet"])
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_identifiers_and_kept_columns_are_in_the_output(folder, tmp_path, source, ending):
    sets = tmp_path / f"sets.{ending}"
    output = run("predict", folder / "model", folder / f"new.{source}", "-o", sets, *ROLES,
                 "--keep", "country")  # fmt: skip
    reader = {"csv": pd.read_csv, "parquet": pd.read_parquet}.get(ending)
    table = pd.read_json(sets, lines=True) if reader is None else reader(sets)
    assert list(table.columns) == ["row", "id", "country", "size", "labels"]
    assert table.id.astype(int).tolist() == frame(NEW).id.tolist()
    expected = sl.load(folder / "model").predict_set(NEW.posterior.astype(np.float64))
    assert table["size"].tolist() == expected.sizes.tolist()
    assert f"accuracy {expected.accuracy(NAMES[NEW.y]):.4f}" in output


@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_the_guarantee_in_each_group(folder, tmp_path, source):
    new, sets = folder / f"new.{source}", tmp_path / "s.jsonl"
    words = ["predict", folder / "model", new, "-o", sets, *ROLES]
    output = run(*words, "--by", "group", "--groups", "country")
    groups = frame(NEW).country.to_numpy()
    model = sl.load(folder / "model")
    expected = model.predict_set(NEW.posterior.astype(np.float64), by="group", groups=groups)
    rows = [json.loads(line) for line in sets.read_text().splitlines()]
    assert [row["labels"] for row in rows] == expected.labels()
    assert str(expected.guarantee) in output
    for lacking in (["--by", "group"], ["--groups", "country"]):
        assert "--groups" in run(*words, "--force", *lacking, code=1)
    run("calibrate", folder / "model", new, "-o", tmp_path / "n", *ROLES, "--groups", "country")
    again = model.calibrate(NEW.posterior.astype(np.float64), NAMES[NEW.y], groups=groups)
    known = KNOWN.posterior.astype(np.float64)
    point = {"by": "group", "groups": frame(KNOWN).country.to_numpy()}
    sets_now = sl.load(tmp_path / "n").predict_set(known, **point)
    assert sets_now.labels() == again.predict_set(known, **point).labels()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("id", np.arange(300) + 7),
        ("customer_id", np.arange(300) // 3),
        ("Unnamed: 0", np.arange(300)),
        ("anything", np.random.default_rng(0).permutation(300) * 13),
    ],
)
def test_an_identifier_is_not_taken_for_a_class(tmp_path, column, values):
    data = tmp_path / "d.csv"
    rows = frame(KNOWN)[[*NAMES, "species"]].rename(columns={"species": "y"})
    rows.insert(0, column, values)
    rows.to_csv(data, index=False)
    for command in (["fit", data, "-o", tmp_path / "m", *QUICK], ["compare", data]):
        output = run(*command, code=1)
        assert f"the column {column!r} looks like an identifier" in output
        assert "--id" in output
        assert "--ignore" in output
        assert len(output.splitlines()) == 1
    run("fit", data, "-o", tmp_path / "m", *QUICK, "--id", column)
    assert sl.load(tmp_path / "m").classes_.tolist() == NAMES.tolist()
    # The same file is refused for prediction, too, unless an option says what the column is.
    output = run("predict", tmp_path / "m", data, "-o", tmp_path / "s.csv", code=1)
    assert f"{column!r}, unknown to the model" in output
    assert "--id, --keep, --ignore" in output


def test_a_class_may_be_called_id(tmp_path):
    data, languages = tmp_path / "d.csv", ["de", "en", "id"]
    rows = pd.DataFrame(KNOWN.posterior.round(), columns=languages)
    rows["y"] = np.array(languages)[KNOWN.y]
    rows.to_csv(data, index=False)
    run("fit", data, "-o", tmp_path / "m", *QUICK)
    assert sl.load(tmp_path / "m").classes_.tolist() == languages


def test_the_index_of_a_frame_has_no_name(tmp_path):
    data = tmp_path / "d.csv"
    rows = frame(KNOWN)[[*NAMES, "species"]]
    rows.to_csv(data)
    output = run("fit", data, "-o", tmp_path / "m", "--label", "species", code=1)
    assert "column 0 has no name" in output
    assert "--ignore 'Unnamed: 0'" in output
    run("fit", data, "-o", tmp_path / "m", *QUICK, "--label", "species", "--id", "Unnamed: 0")


@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_messages_say_which_option_settles_a_column(folder, tmp_path, source):
    data, where = folder / f"known.{source}", ["-o", tmp_path / "m"]
    output = run("fit", data, *where, "--id", "id", "--label", "species", code=1)
    assert "'comment' is not numeric" in output
    assert "--ignore comment" in output
    output = run("fit", data, *where, "--ignore", "species", "--ignore", "comment", "--ignore",
                 "country", code=1)  # fmt: skip
    assert "name the column with --label" in output
    output = run("fit", data, *where, *ROLES, "--ignore", "weather", code=1)
    assert "has no column 'weather' (ignore); its columns are 'id', 'ant'" in output
    output = run("fit", data, *where, "--label", "id", "--ignore", "id", code=1)
    assert "'id' is in both ignore and label" in output
    assert not (tmp_path / "m").exists()


BAD = {3: ("ant", np.nan), 10: ("bee", np.inf), 25: ("species", None), 30: ("species", "dodo")}


def spoiled(part: sl.datasets.Samples) -> pd.DataFrame:
    rows = frame(part)
    for row, (column, value) in BAD.items():
        rows.loc[row, column] = value
    return rows


@pytest.mark.parametrize("source", ["csv", "parquet"])
@pytest.mark.filterwarnings("ignore:.*bad rows? w")
def test_bad_rows_are_skipped(folder, tmp_path, source, monkeypatch):
    spoiled(KNOWN).to_csv(tmp_path / "known.csv", index=False)
    spoiled(KNOWN).to_parquet(tmp_path / "known.parquet")
    data, sets = tmp_path / f"known.{source}", tmp_path / "s.jsonl"
    roles = [*ROLES, "--groups", "country"]
    output = run("fit", data, "-o", tmp_path / "m", *QUICK, *roles, code=1)
    assert "species of row 25 is missing" in output
    assert "--on-bad-rows skip" in output
    words = ["fit", data, "-o", tmp_path / "m", *QUICK, *roles, "--on-bad-rows", "skip"]
    with pytest.warns(UserWarning, match="3 bad rows were skipped; the first is row 3: scores"):
        record = json.loads(run(*words, "--json").splitlines()[-1])
    assert record["rows"] == 296
    clean = frame(KNOWN).drop(index=list(BAD))
    clean.to_csv(tmp_path / "clean.csv", index=False)
    run("fit", tmp_path / "clean.csv", "-o", tmp_path / "c", *QUICK, *roles)
    new = NEW.posterior.astype(np.float64)
    expected = sl.load(tmp_path / "c").predict_set(new)
    assert sl.load(tmp_path / "m").predict_set(new).labels() == expected.labels()
    spoiled(KNOWN).replace("dodo", "ant").to_csv(tmp_path / "known.csv", index=False)
    spoiled(KNOWN).replace("dodo", "ant").to_parquet(tmp_path / "known.parquet")
    monkeypatch.setattr("shortlist.datasets.row_files.BLOCK_ROWS", 7)
    run("predict", tmp_path / "m", data, "-o", sets, *ROLES, "--keep", "country",
        "--on-bad-rows", "skip")  # fmt: skip
    rows = pd.read_json(sets, lines=True)
    assert rows.row.tolist() == [i for i in range(300) if i not in (3, 10, 25)]
    assert rows.id.tolist() == [1000 + i for i in rows.row]


def test_rows_without_a_good_one_are_an_error(tmp_path):
    data = tmp_path / "d.csv"
    data.write_text("a,b,y\n0.5,x,a\n,0.5,b\n")
    with pytest.raises(ValueError, match="'b' is not numeric"):
        read_rows(data)
    with pytest.raises(ValueError, match="all 2 rows are bad; the first is row 0: scores contain"):
        read_rows(data, on_bad_rows="skip")
    with pytest.raises(ValueError, match="on_bad_rows must be one of 'raise', 'skip'"):
        read_rows(data, on_bad_rows="drop")


def test_text_among_numbers_is_a_bad_row(tmp_path):
    data = tmp_path / "d.csv"
    data.write_text("a,b,y\n0.5,0.5,0\n?,0.1,1\n0.2,0.8,1\n0.3,0.7,1\n")
    with pytest.warns(UserWarning, match="1 bad row was skipped; the first is row 1: scores conta"):
        rows = read_rows(data, on_bad_rows="skip")
    assert rows.numbers.tolist() == [0, 2, 3]
    assert np.asarray(rows.scores).tolist() == [[0.5, 0.5], [0.2, 0.8], [0.3, 0.7]]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.filterwarnings("ignore:.*bad rows w")
def test_candidates_with_bad_rows(tmp_path, ending):
    rows = pd.DataFrame({
        "labels": [["a", "b"], ["b"], None, ["a", "a"], ["b", "c"]],
        "scores": [[0.6, 0.3], [0.9, 0.1], [0.5], [0.4, 0.3], [0.7, 0.2]],
        "y": ["a", "b", "b", "a", "c"], "key": [5, 6, 7, 8, 9],
    })  # fmt: skip
    data = tmp_path / f"d.{ending}"
    if ending == "csv":
        lists = {c: [json.dumps(v) if v else "none" for v in rows[c]] for c in ("labels", "scores")}
        rows.assign(**lists).to_csv(data, index=False)
    else:
        rows.to_parquet(data)
    whole = read_rows(data, on_bad_rows="skip", keep=["key"])
    blocks = list(stream_rows(data, 2, on_bad_rows="skip", keep=["key"]))
    for parts in ([whole], blocks):
        assert [int(n) for part in parts for n in part.numbers] == [0, 4]
        assert [str(k) for part in parts for k in part.extra["key"]] == ["5", "9"]
        assert [label for part in parts for label in part.y.tolist()] == ["a", "c"]


def test_arrays_by_other_names(tmp_path):
    scores = KNOWN.posterior.astype(np.float64).copy()
    scores[4, 1] = np.nan
    ids, groups = np.arange(300) + 50, np.arange(300) % 3
    np.savez(tmp_path / "d.npz", scores=scores, truth=KNOWN.y, features=KNOWN.x, key=ids,
             site=groups)  # fmt: skip
    with pytest.warns(UserWarning, match="1 bad row was skipped; the first is row 4"):
        rows = read_rows(tmp_path / "d.npz", label="truth", groups="site", keep=["key"],
                         ignore=["features"], on_bad_rows="skip")  # fmt: skip
    assert rows.features is None
    assert rows.y.tolist() == np.delete(KNOWN.y, 4).tolist()
    assert rows.extra["key"].tolist() == np.delete(ids, 4).tolist()
    assert rows.groups.tolist() == np.delete(groups, 4).tolist()
    with pytest.raises(ValueError, match="scores must have one value for each of 300 rows"):
        read_rows(tmp_path / "d.npz", keep=["scores"])


def test_feature_files_and_clusters_have_fixed_names(folder, tmp_path):
    sl.datasets.save(tmp_path / "f.npz", sl.datasets.FeatureFile(*DATA.split(100, 200)))
    output = run("fit", tmp_path / "f.npz", "-o", tmp_path / "m", "--id", "key", code=1)
    assert "is a feature file, whose arrays have fixed names; leave --id out" in output
    words = ["fit", folder / "known.parquet", "-o", tmp_path / "m", "--ray", "local"]
    assert "--label does not work with --ray" in run(*words, "--label", "species", code=1)


def test_kept_columns_do_not_hide_those_of_the_sets(folder, tmp_path):
    words = ["predict", folder / "model", folder / "new.csv", "-o", tmp_path / "s.csv"]
    assert "the output has a column of that name" in run(*words, "--keep", "size", code=1)


@pytest.mark.parametrize(("separator", "shown"), [(";", "';'"), ("\t", r"'\t'")])
def test_another_separator_is_named(tmp_path, separator, shown):
    data = tmp_path / "d.csv"
    frame(KNOWN)[[*NAMES, "species"]].to_csv(data, index=False, sep=separator, decimal=",")
    output = run("fit", data, "-o", tmp_path / "m", "--label", "species", code=1)
    assert f"must be separated by commas, but the header has {shown}" in output


def test_an_empty_file_and_another_encoding_are_named(tmp_path):
    data = tmp_path / "d.csv"
    data.write_text("")
    arguments = ["fit", data, "-o", tmp_path / "m", "--label", "species", "--ignore", "comment"]
    assert "d.csv has no rows" in run(*arguments, code=1)
    rows = frame(KNOWN)[[*NAMES, "species"]].assign(comment="déjà vu")
    rows.to_csv(data, index=False, encoding="latin-1")
    assert "d.csv is not encoded in UTF-8" in run(*arguments, code=1)


def test_all_columns_that_are_not_numbers_are_named(tmp_path):
    data = tmp_path / "d.csv"
    frame(KNOWN)[[*NAMES, "species"]].assign(city="x", note="y").to_csv(data, index=False)
    output = run("fit", data, "-o", tmp_path / "m", code=1)
    assert "'species' is not numeric (neither: 'city', 'note'): pass --label species" in output
