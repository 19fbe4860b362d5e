"""`crossfade evaluate`: its table, its files, its exit codes and its refusals."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from crossfade import Upgrade
from crossfade.cases import CASES
from crossfade.compatibility.verdicts import ASKED
from crossfade.retrieval import SameClass, measure


def strict(text):
    """JSON that any reader takes: no NaN and no Infinity."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


def arrays(path="held.npz"):
    with np.load(path) as loaded:
        return dict(loaded)


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """An upgrade fitted on half of the rows; held.npz holds the other half."""
    monkeypatch.chdir(tmp_path)
    old, new, labels = made(rows=400, noise=0.8)
    half = slice(200, None)
    upgrade = Upgrade(solver="closed_form", old_model="ada-1", new_model="ada-2")
    upgrade.fit(old[:200], new[:200], labels[:200]).save("mine")
    np.savez("held.npz", old=old[half], new=new[half], labels=labels[half])
    for name, x in (("old", old), ("new", new), ("labels", labels)):
        np.save(f"{name}.npy", x[half])
    np.save("newer.npy", new[half] @ np.random.default_rng(0).normal(size=(8, 9)).astype("f4"))
    return tmp_path


def test_the_table_names_every_case_and_its_verdict(crossfade, folder):
    ran = crossfade("evaluate", "mine", "held.npz")
    assert ran.code == 0, ran.err
    for case in CASES:
        assert case in ran.out
    assert "not compatible" in ran.out
    assert "200 queries on 200 items, cosine, relevance from labels" in ran.out
    assert "Definition 3.1, B(new)/old: holds for" in ran.out
    assert "singular values 1.000 to 1.000" in ran.out


def test_json_keeps_its_contract(crossfade, folder):
    ran = crossfade("evaluate", "mine", "held.npz", "--json", "out.json")
    assert ran.code == 0, ran.err
    found = strict((folder / "out.json").read_text(encoding="utf-8"))
    assert list(found["cases"]) == [*CASES, *ASKED]
    held = arrays()
    expected = measure(held["old"], held["old"], SameClass.among(held["labels"]), ["cmc@5", "mAP"])
    assert found["cases"]["old/old"]["mAP"] == pytest.approx(expected.mean("mAP"))
    assert found["cases"]["old/old"]["cmc@5"] == pytest.approx(expected.mean("cmc@5"))
    low, high = found["cases"]["old/old"]["ci95"]["mAP"]
    assert low < found["cases"]["old/old"]["mAP"] < high
    verdict = found["verdicts"]["new/old"]
    assert (verdict["compatible"], verdict["verdict"]) == (False, "not compatible")
    assert set(verdict["metrics"]) == {"cmc@1", "mAP"}
    assert verdict["metrics"]["mAP"]["ci95"][1] < 0
    assert found["upgrade"]["hash"] == Upgrade.load("mine").hash_
    assert found["definition"]["B(new)/old"]["same_class"]["pairs"] == 200 * (200 // 6) + 68 - 200
    assert found["stability"]["deviation"] < 1e-4
    assert found["required"] == ["B(new)/F(old)", "B(new)/old"]


def test_json_on_stdout_is_one_line_and_all_there_is(crossfade, folder):
    ran = crossfade("evaluate", "mine", "held.npz", "--json", "-", "--per-class")
    assert ran.out.count("\n") == 1
    assert set(strict(ran.out)["per_class"]["old/old"]) == {str(c) for c in range(6)}


def test_markdown_and_latex(crossfade, folder):
    ran = crossfade("evaluate", "mine", "held.npz", "--markdown", "t.md", "--latex", "t.tex")
    assert ran.code == 0, ran.err
    lines = (folder / "t.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "| Query/Gallery | cmc@1 | cmc@5 | mAP | against old/old |"
    assert [line.split(" | ")[0] for line in lines[2:10]] == [f"| {case}" for case in CASES]
    latex = (folder / "t.tex").read_text(encoding="utf-8")
    assert latex.startswith("\\begin{tabular}{lrrrc}\n\\toprule\n")
    assert "Query/Gallery & CMC-Top1 & CMC-Top5 & mAP & ECC \\\\ \\midrule" in latex
    assert "$B(\\phi_{\\text{new}})/F(\\phi_{\\text{old}})$ & " in latex
    assert latex.count("\\\\") == 1 + len(CASES) + len(ASKED)
    assert crossfade("evaluate", "mine", "held.npz", "--latex", "-").out == latex


def test_the_picture_is_a_png_of_some_size(crossfade, folder):
    from matplotlib.image import imread

    ran = crossfade("evaluate", "mine", "held.npz", "--plot", "bars.png")
    assert ran.code == 0, ran.err
    height, width, _ = imread("bars.png").shape
    assert width > height > 300
    assert crossfade("evaluate", "mine", "held.npz", "--plot", "bars.jpg").code == 2


def test_arrays_may_come_one_by_one(crossfade, folder):
    whole = strict(crossfade("evaluate", "mine", "held.npz", "--json", "-").out)
    data = ["--old", "old.npy", "--new", "new.npy", "--labels", "labels.npy"]
    parts = strict(crossfade("evaluate", "mine", *data, "--json", "-").out)
    assert parts["cases"] == whole["cases"]


def test_a_required_case_that_is_not_compatible_exits_with_1(crossfade, folder):
    ran = crossfade("evaluate", "mine", "held.npz", "--require", "new/old", "--json", "out.json")
    assert ran.code == 1
    assert "mine: new/old: below old/old with 95 % confidence → " in ran.err
    # The result is there all the same.
    assert strict((folder / "out.json").read_text(encoding="utf-8"))["failed"] == ["new/old"]
    assert crossfade("evaluate", "mine", "held.npz", "--require", "none").code == 0


def test_qrels_in_one_file_with_queries_of_their_own(crossfade, folder):
    held = arrays()
    qrels = np.array([[0, 3, 1], [0, 4, 2], [1, 5, 1]], dtype=np.int32)
    tensors = {"old": held["old"][50:], "new": held["new"][50:], "qrels": qrels}
    tensors |= {"old_queries": held["old"][:50], "new_queries": held["new"][:50]}
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, "judged.safetensors")
    found = strict(
        crossfade("evaluate", "mine", "judged.safetensors", "--json", "-", "--require", "none").out
    )
    assert found["metrics"] == ["ndcg@10", "recall@10", "mrr@10"]
    assert found["data"]["evaluated_queries"] == 2
    assert found["data"]["queries_with_nothing_relevant"] == 48
    np.savez("gallery.npz", old=held["old"][50:], new=held["new"][50:])
    np.savez("queries.npz", old=held["old"][:50], new=held["new"][:50])
    pq.write_table(
        pa.table({"query": qrels[:, 0], "item": qrels[:, 1], "grade": qrels[:, 2]}), "q.parquet"
    )
    apart = ["gallery.npz", "--queries", "queries.npz", "--qrels", "q.parquet"]
    again = strict(crossfade("evaluate", "mine", *apart, "--json", "-", "--require", "none").out)
    assert again["cases"] == found["cases"]


def test_ids_tell_which_query_is_which_item(crossfade, folder):
    held = arrays()
    np.save("ids.npy", np.arange(1000, 1200))
    np.save("asked.npy", np.arange(1000, 1040))
    np.savez("queries.npz", **{k: held[k][:40] for k in held})
    data = ["held.npz", "--queries", "queries.npz", "--require", "none", "--json", "-"]
    found = strict(
        crossfade("evaluate", "mine", *data, "--ids", "ids.npy", "--query-ids", "asked.npy").out
    )
    assert found["data"]["leave_one_out"]
    relevance = SameClass(held["labels"][:40], held["labels"], np.arange(40))
    expected = measure(held["old"][:40], held["old"], relevance, ["mAP"])
    assert found["cases"]["old/old"]["mAP"] == pytest.approx(expected.mean("mAP"))
    assert not strict(crossfade("evaluate", "mine", *data).out)["data"]["leave_one_out"]


def test_without_labels_agreement_is_shown_and_not_judged(crossfade, folder):
    outputs = ["--json", "o.json", "--markdown", "t.md", "--latex", "t.tex"]
    ran = crossfade("evaluate", "mine", "held.npz", "--no-labels", *outputs)
    assert ran.code == 1
    error = " ".join(ran.err.split())
    assert "mine: B(new)/F(old) and B(new)/old not judged: agreement with" in error
    assert "give labels, qrels, or lookups (crossfade pairs, or --queries and --qrels" in error
    found = strict((folder / "o.json").read_text(encoding="utf-8"))
    assert found["metrics"] == ["agreement@1", "agreement@10"]
    assert found["judged"] is False
    assert found["failed"] == ["B(new)/F(old)", "B(new)/old"]
    for verdict in found["verdicts"].values():
        assert verdict == {"compatible": None, "verdict": "not judged", "metrics": {}}
    files = [(folder / name).read_text(encoding="utf-8") for name in ("t.md", "t.tex")]
    for text in (ran.out, *files):
        assert "not judged" in text
        for word in ("compatible", "✓", "checkmark", "✗", "times"):
            assert word not in text


def test_what_is_not_judged_is_good_only_where_nothing_is_required(crossfade, folder):
    asked = ["evaluate", "mine", "held.npz", "--no-labels", "--json", "-"]
    assert crossfade(*asked, "--require", "B(new)/old").code == 1
    ran = crossfade(*asked, "--require", "none")
    assert ran.code == 0
    assert (strict(ran.out)["judged"], strict(ran.out)["failed"]) == (False, [])
    labelled = strict(crossfade("evaluate", "mine", "held.npz", "--json", "-").out)
    assert labelled["judged"] is True
    only = crossfade("evaluate", "mine", "held.npz", "--metric", "agreement@10", "--json", "-")
    assert only.code == 1
    assert strict(only.out)["verdicts"]["B(new)/old"]["verdict"] == "not judged"


def test_the_picture_of_what_is_not_judged_has_no_colour_of_a_verdict(crossfade, folder):
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    from crossfade.compatibility.picture import COLOURS

    def colours(*options):
        assert crossfade("evaluate", "mine", "held.npz", "--plot", "p.png", *options).code == 0
        pixels = imread("p.png")[..., :3].reshape(-1, 3)
        return {
            word
            for word, colour in COLOURS.items()
            if (np.abs(pixels - np.array(to_rgb(colour))).max(axis=1) < 0.01).any()
        }

    assert colours("--no-labels", "--require", "none") == set()
    assert colours() == set(COLOURS)


def test_metrics_and_distance_as_asked(crossfade, folder):
    options = ["--metric", "ndcg@5", "--metric", "precision@3", "--distance", "l2"]
    found = strict(crossfade("evaluate", "mine", "held.npz", *options, "--json", "-").out)
    assert (found["metrics"], found["distance"]) == (["ndcg@5", "precision@3"], "l2")


def test_zero_shot_says_what_b_changes(crossfade, folder):
    data = ["--zero-shot", "new.npy", "--zero-shot-labels", "labels.npy"]
    ran = crossfade("evaluate", "mine", "held.npz", *data)
    assert "zero-shot cmc@1: " in ran.out
    assert "(+0.00 [+0.00, +0.00])" in ran.out


def test_a_bent_b_changes_zero_shot(crossfade, folder, made):
    old, new, labels = made(rows=400, noise=0.8)
    bent = Upgrade(backward_map="affine", hidden=(4,), epochs=60, lr=0.05, w4=5.0)
    bent.fit(old[:200], new[:200], labels[:200]).save("bent")
    other = np.random.default_rng(0).permutation(labels[200:])
    np.save("other.npy", other)
    data = ["--zero-shot", "new.npy", "--zero-shot-labels", "other.npy", "--require", "none"]
    found = strict(crossfade("evaluate", "bent", "held.npz", *data, "--json", "-").out)["zero_shot"]
    mapped = bent.backward(new[200:])
    expected = [
        measure(x, x, SameClass.among(other), ["mAP"]).mean("mAP") for x in (new[200:], mapped)
    ]
    assert found["mAP"]["new"] == pytest.approx(expected[0])
    assert found["mAP"]["mapped"] == pytest.approx(expected[1])
    assert found["mAP"]["change"] == pytest.approx(expected[1] - expected[0])


def test_three_models_in_a_row(crossfade, folder):
    newer = np.load("newer.npy")
    new = np.load("new.npy")
    Upgrade(solver="closed_form", new_model="ada-3").fit(new, newer).save("then")
    ran = crossfade("evaluate", "mine", "held.npz", "--then", "then=newer.npy", "--json", "o.json")
    assert ran.code == 0, ran.err
    assert "average compatibility" in ran.out
    chain = strict((folder / "o.json").read_text(encoding="utf-8"))["chain"]
    assert chain["models"] == ["ada-1", "ada-2", "ada-3"]
    assert [len(row) for row in chain["metrics"]["mAP"]["matrix"]] == [1, 2, 3]
    cases = strict((folder / "o.json").read_text(encoding="utf-8"))["cases"]
    matrix = chain["metrics"]["mAP"]["matrix"]
    assert matrix[1][0] == pytest.approx(cases["B(new)/old"]["mAP"])


def test_a_sample_of_pairs_for_the_definition(crossfade, folder):
    ran = crossfade("evaluate", "mine", "held.npz", "--definition-sample", "500", "--json", "-")
    share = strict(ran.out)["definition"]["B(new)/old"]["same_class"]
    assert share["pairs"] == 500
    assert share["ci95"][0] <= share["share"] <= share["ci95"][1]
    left_out = crossfade("evaluate", "mine", "held.npz", "--no-definition", "--json", "-")
    assert strict(left_out.out)["definition"] == {}


def test_warnings_go_to_stderr_and_into_the_json(crossfade, folder):
    np.savez("seen.npz", **{k: v[:60] for k, v in arrays().items()})
    ran = crossfade("evaluate", "mine", "seen.npz", "--json", "out.json", "--require", "none")
    assert "warning: only 60 queries: too few for these verdicts" in ran.err
    written = strict((folder / "out.json").read_text(encoding="utf-8"))["warnings"]
    assert any("only 60 queries" in text for text in written)


def test_bad_rows_may_be_left_out(crossfade, folder):
    held = arrays()
    held["new"][3] = np.nan
    np.savez("bad.npz", **held)
    ran = crossfade("evaluate", "mine", "bad.npz")
    assert ran.code == 2
    assert "bad.npz: row 3 of 'new' has a NaN" in ran.err
    ran = crossfade("evaluate", "mine", "bad.npz", "--drop-bad-rows")
    assert ran.code == 0, ran.err
    assert "bad.npz: 1 bad rows left out" in ran.err
    assert "199 queries on 199 items" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["held.npz", "--metric", "speed"], "there is no metric named 'speed'"),
        (["held.npz", "--require", "old/old"], "'old/old' is not a cross-model case"),
        (["held.npz", "--zero-shot", "new.npy"], "--zero-shot needs labels"),
        (["held.npz", "--zero-shot-labels", "labels.npy"], "--zero-shot-labels without vectors"),
        (["held.npz", "--query-labels", "labels.npy"], "there are no separate queries"),
        (["held.npz", "--then", "mine"], "--then 'mine' is not UPGRADE=FILE"),
        (["held.npz", "--then", "mine=short.npy"], "short.npy: has 5 rows for 200 of the pairs"),
        (["held.npz", "--no-labels", "--then", "mine=new.npy"], "a sequence of models is measured"),
        (["held.npz", "--json", "nowhere/out.json"], "nowhere/out.json: cannot be written"),
        (["held.npz", "--plot", "nowhere/out.png"], "nowhere/out.png: cannot be written"),
        (["held.npz", "--qrels", "far.npy"], "far.npy: row 1 names item 999, and there are 200"),
        (
            ["held.npz", "--qrels", "held.npz"],
            "held.npz: has no 'qrels', only 'old' (200 × 6 float32)",
        ),
        (["held.npz", "--qrels", "none.npy"], "none.npy: no such file"),
        (
            ["held.npz", "--qrels", "far.npy", "--drop-bad-rows"],
            "qrels and ids name rows by number",
        ),
        (["held.npz", "--labels", "short_labels.npy"], "'labels' has 5 values for 200 rows"),
        (["held.npz", "--ids", "twice.npy"], "gallery id 0 is given 2 times"),
        (["held.npz", "--resamples", "5"], "5 resamples are too few"),
        (["held.npz", "--device", "tpu"], "device"),
        (["twin.npz"], "'old' and 'new' hold the same vectors"),
        (
            ["--old", "old.npy", "--new", "nothing.npy"],
            "nothing.npy: 'vector' (0 × 8 float32) is empty",
        ),
        ([], "no old and new vectors were named"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(crossfade, folder, arguments, message):
    x = np.load("new.npy")
    np.save("short.npy", x[:5])
    np.save("short_labels.npy", np.zeros(5, int))
    np.save("far.npy", np.array([[0, 1, 1], [0, 999, 1]]))
    np.save("twice.npy", np.r_[np.arange(199), 0])
    np.save("nothing.npy", x[:0])
    np.savez("twin.npz", old=x, new=x)
    before = {path.name for path in folder.iterdir()}
    json_too = [] if "--json" in arguments else ["--json", "out.json"]
    ran = crossfade("evaluate", "mine", *arguments, *json_too)
    assert ran.code == 2, (ran.out, ran.err)
    assert message in " ".join(ran.err.split())
    assert {path.name for path in folder.iterdir()} == before
