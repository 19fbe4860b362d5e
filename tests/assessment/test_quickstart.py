"""One call from a store to an answer: it reads, never writes, goes on where it was, and says no."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.assessment.conftest import NEW, OLD, ROWS, SIZES, ask, create
from tests.lookups import models
from tests.stores.apps import LanceApp, PostgresApp

import crossfade as package
from crossfade.errors import BadInput
from crossfade.migration import Migration

WORDS = [word for name, n in SIZES.items() for word in (f"--{name}", n)]


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def ndcg(scores: np.ndarray, wanted: np.ndarray) -> float:
    own = scores[np.arange(len(wanted)), wanted][:, None]
    ranks = 1 + (scores > own).sum(axis=1)
    return float(100 * np.where(ranks <= 10, 1 / np.log2(1 + ranks), 0).mean())


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def copied(asked, tmp_path):
    """The store and the folder of an answer, for a test to go on with."""
    app, folder, answer = asked
    shutil.copytree(folder, tmp_path / "answer")
    return app, tmp_path / "answer", answer


def test_today_is_what_the_stored_vectors_find_among_all_rows(asked):
    app, folder, answer = asked
    today, started = answer.stages[:2]
    with np.load(folder / "pairs.npz") as arrays:
        wanted = arrays["held_ids"][arrays["lookup_items"]]
        queries = arrays["lookup_old"]
    stored = app.old()
    rows = unit(np.stack([stored[key] for key in range(ROWS)]))
    assert (today.gallery, today.whole_store) == (ROWS, True)
    found = today.levels["ndcg@10"].quality
    assert found == pytest.approx(ndcg(unit(queries) @ rows.T, wanted))
    level = started.levels["ndcg@10"]
    assert level.against_today == pytest.approx(level.quality - found)


def test_the_answer_is_to_upgrade_where_the_end_is_above_today(asked):
    _, folder, answer = asked
    assert answer.upgrade is True
    end = answer.stages[-1]
    assert (end.name, end.asked) == ("finished", "new")
    with np.load(folder / "pairs.npz") as arrays:
        items, queries = arrays["held_new"], arrays["lookup_new"]
        wanted = arrays["lookup_items"]
        old = unit(arrays["lookup_old"]) @ unit(arrays["held_old"]).T
    level = end.levels["ndcg@10"]
    assert level.ci95[0] > 0
    # Of the held rows 150, of which a few are not filled at the stop.
    new = ndcg(unit(queries) @ unit(items).T, wanted)
    assert level.quality == pytest.approx(new, abs=8)
    assert level.quality - level.against_today == pytest.approx(ndcg(old, wanted))


def test_what_is_to_be_embedded_leaves_the_pairs_out(asked):
    _, folder, answer = asked
    plan = json.loads((folder / "plan" / "plan.json").read_text())
    assert answer.fill.rows == int(plan["stop"] * ROWS + 1e-9)
    assert answer.fill.to_embed == answer.fill.rows - SIZES["rows"]
    assert answer.everything.to_embed == ROWS - SIZES["rows"]
    assert (
        answer.storage_bytes
        == Migration(answer.store, folder / "upgrade")
        .outlook(evaluation=folder / "evaluation.json", plan=folder / "plan")
        .storage_bytes
    )


@pytest.mark.parametrize("kind", [LanceApp, PostgresApp])
def test_the_store_is_as_it_was(crossfade, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = create(kind(tmp_path))
    seen = {LanceApp: lambda: content(tmp_path / "db"), PostgresApp: lambda: everything(app)}[kind]
    before = seen()
    models_ = ("--embed", NEW, "--embed-old", OLD)
    ran = crossfade("quickstart", app.address, *models_, *WORDS, "-o", "out")
    assert seen() == before
    answer = json.loads(Path("out/answer.json").read_text())
    assert ran.code == 0 and answer["upgrade"] is True
    assert "upgrade: ndcg@10 +" in ran.out
    for command in answer["commands"]:
        assert f"  {command}\n" in ran.out
    start = answer["commands"][0]
    assert "--source body --evaluation out/evaluation.json --plan out/plan" in start
    assert {path.name for path in Path("out").iterdir()} >= {
        *("pairs.npz", "upgrade", "evaluation.json", "plan", "report.html", "answer.json")
    }
    again = crossfade("quickstart", app.address, *models_, *WORDS, "-o", "out", "--json", "-")
    assert again.code == 0
    assert json.loads(again.out)["stages"] == answer["stages"]
    assert again.err.count("kept from an earlier run") == 4


def everything(app: PostgresApp) -> list:
    """All that the database holds: its tables, their columns, their rows as they were written."""
    columns = app.run(
        "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2, 3"
    )
    return columns + app.run("SELECT xmin::text, t::text FROM items t ORDER BY id")


def test_a_second_run_embeds_nothing_and_writes_the_same(asked, tmp_path):
    app, folder, answer = copied(asked, tmp_path)
    before = content(folder)
    calls = []

    def counted(texts):
        calls.append(len(texts))
        return models.new(texts)

    counted.__module__, counted.__qualname__ = models.new.__module__, models.new.__qualname__
    again = ask(app, folder, embed=counted)
    assert calls == []
    after = content(folder)
    for part in ("pairs.npz", "evaluation.json", "plan/plan.json", "upgrade/config.json"):
        assert after[part] == before[part]
    assert again.stages == answer.stages and again.fill == answer.fill
    assert len([text for text in again.notes if "kept from an earlier run" in text]) == 4


def test_a_run_that_was_stopped_goes_on_behind_what_it_finished(tmp_path):
    app = create(LanceApp(tmp_path))

    class PowerCut(Exception):
        pass

    def cut(step, done, total):
        if step.startswith("3/4"):
            raise PowerCut

    with pytest.raises(PowerCut):
        ask(app, tmp_path / "out", progress=cut)
    pairs = (tmp_path / "out" / "pairs.npz").read_bytes()
    steps = []
    answer = ask(app, tmp_path / "out", progress=lambda step, done, total: steps.append(step))
    assert {step[:3] for step in steps} == {"3/4", "4/4"}
    assert (tmp_path / "out" / "pairs.npz").read_bytes() == pairs
    assert answer.upgrade is True


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"rows": 150}, "rows"),
        ({"embed": "tests.lookups.models:other"}, "embed"),
        ({"seed": 3, "lookups": 100}, "lookups and seed"),
    ],
)
def test_another_sample_in_the_same_folder_is_refused(asked, options, changed):
    app, folder, _ = asked
    before = content(folder)
    with pytest.raises(BadInput, match=f"another {changed} → name another folder, or --overwrite"):
        ask(app, folder, **options)
    assert content(folder) == before


def test_another_price_makes_the_plan_again_and_nothing_else(asked, tmp_path):
    app, folder, answer = copied(asked, tmp_path)
    again = ask(app, folder, cost_per_1k=2.0, items_per_second=10)
    made = [text for text in again.notes if "made again" in text]
    assert made == [f"{folder}/plan: made again, for other cost_per_1k, items_per_second"]
    assert again.fill.cost == pytest.approx(answer.fill.to_embed * 2 / 1000)
    assert again.fill.seconds == pytest.approx(answer.fill.to_embed / 10)
    assert again.stages == answer.stages


def test_rows_that_came_are_distractors_of_the_next_answer(tmp_path):
    app = create(LanceApp(tmp_path))
    first = ask(app, tmp_path / "out")
    texts = models.texts_of(40, seed=9)
    app.insert(list(range(ROWS, ROWS + 40)), texts, [0] * 40, models.old(texts))
    again = ask(app, tmp_path / "out")
    assert [stage.gallery for stage in again.stages[:2]] == [ROWS + 40] * 2
    assert again.everything.rows == ROWS + 40
    assert again.fill.known == first.fill.known
    assert sum("for other rows of the store" in text for text in again.notes) == 2


def test_labelled_items_are_judged_by_their_class(tmp_path):
    """Items without a text: the new model's vectors are in a file, the class in a column."""
    rng = np.random.default_rng(0)
    kinds = np.arange(ROWS) % 8
    items = rng.normal(size=(8, 16))[kinds] + 0.9 * rng.normal(size=(ROWS, 16))
    old = (items @ rng.normal(size=(16, 8)) + 1.5 * rng.normal(size=(ROWS, 8))).astype(np.float32)
    new = (items @ rng.normal(size=(16, 20)) + 1).astype(np.float32)
    app = LanceApp(tmp_path)
    app.create(list(range(ROWS)), [""] * ROWS, kinds.tolist(), old)
    np.savez(tmp_path / "new.npz", ids=np.arange(ROWS), vectors=new)
    given = {"embed": str(tmp_path / "new.npz"), "embed_old": None, "labels": "kind"}
    answer = ask(app, tmp_path / "out", **given | {"lookups": None})
    assert answer.upgrade is True
    # Nobody can ask with an old model that is not there.
    assert {stage.asked for stage in answer.stages} == {"old", "new"}
    assert set(answer.stages[0].levels) == {"cmc@1", "mAP"}
    with np.load(tmp_path / "out" / "pairs.npz") as arrays:
        held, own = unit(arrays["held_old"]), kinds[arrays["held_ids"]]
        assert "lookup_new" not in arrays
    scores = held @ held.T
    np.fill_diagonal(scores, -np.inf)
    first = 100 * float((own[scores.argmax(axis=1)] == own).mean())
    assert answer.stages[0].levels["cmc@1"].quality == pytest.approx(first)
    fill = next(line for line in answer.commands if "backfill" in line)
    assert fill.endswith(f"--embed {tmp_path}/new.npz --labels kind")


def test_without_the_old_model_nothing_is_judged_and_the_cost_is_told(
    crossfade, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    app = create(LanceApp(tmp_path))
    words = ("quickstart", app.address, "--embed", NEW, *WORDS, "--cost-per-1k", 1, "-o", "out")
    ran = crossfade(*words)
    assert ran.code == 1
    assert "not judged: today's search was not measured" in ran.out
    answer = json.loads(Path("out/answer.json").read_text())
    assert answer["upgrade"] is None and answer["asking"] == "new"
    assert [list(stage["levels"]) for stage in answer["stages"]] == [["ndcg@10"]] * 4
    assert answer["fill"]["cost"] == pytest.approx(answer["fill"]["to_embed"] / 1000)
    assert answer["commands"][0].endswith("--plan out/plan --force")
    ran = crossfade(*words, "--today", 1)
    assert ran.code == 0, ran.err
    assert "upgrade: ndcg@10 +" in ran.out
    start = json.loads(Path("out/answer.json").read_text())["commands"][0]
    assert start.endswith("--source body --plan out/plan")


def test_a_new_model_that_finds_less_is_not_recommended(crossfade, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = create(LanceApp(tmp_path))
    Path("worse.py").write_text(
        "import numpy as np\n"
        "from tests.lookups.models import new\n"
        "def embed(texts):\n"
        "    seen = new(texts)\n"
        "    noise = [np.random.default_rng(len(t) + ord(t[-2])).normal(size=24) for t in texts]\n"
        "    return seen + 12 * np.array(noise)\n"
    )
    models_ = ("--embed", "worse:embed", "--embed-old", OLD)
    ran = crossfade("quickstart", app.address, *models_, *WORDS, "-o", "out")
    assert ran.code == 1, ran.err
    assert ran.out.count("do not upgrade: ") == 1
    assert json.loads(Path("out/answer.json").read_text())["upgrade"] is False


def test_a_password_is_in_nothing_that_is_printed_or_written(crossfade, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = create(PostgresApp(tmp_path))
    url, _, table = app.address.partition("#")
    place = f"{url}&password=hush-hush#{table}"
    ran = crossfade("quickstart", place, "--embed", NEW, "--embed-old", OLD, *WORDS, "-o", "out")
    assert ran.code == 0, ran.err
    assert "leave the password of the address out" in ran.err
    assert "hush" not in ran.out + ran.err
    assert not any(b"hush" in data for data in content(tmp_path / "out").values())


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("{}", "--embed", NEW, "--source", "words"), "no column 'words' → name one of id, body"),
        (("{}",), "no new model → name it with --embed"),
        (("--embed", NEW), "no such store"),
        (("{}", "--embed", NEW, "--lookups", 0), "nothing to judge by"),
        (("{}", "--embed", NEW, "--embed-old", NEW), "24 dimensions where the store's vectors"),
        (("{}", "--embed", OLD), "gives the vectors that are stored already"),
        (
            ("{}", "--embed", NEW, "-o", "taken"),
            "holds 'note.txt' and is no folder of a",
        ),
        (("{}", "--embed", NEW, "-o", "no/such"), "no/such"),
        (("nowhere", "--embed", NEW), "no such store"),
    ],
)
def test_bad_input_is_one_line(crossfade, asked, tmp_path, monkeypatch, arguments, cause):
    monkeypatch.chdir(tmp_path)
    Path("taken").mkdir()
    Path("taken/note.txt").write_text("mine")
    words = [str(word).format(asked[0].address) for word in arguments]
    if words[0] == "--embed":
        words.append("nowhere")
    ran = crossfade("quickstart", *words)
    assert ran.code in (2, 3), ran.err
    assert cause in " ".join(ran.err.split())
    assert "Traceback" not in ran.err
    assert not Path("quickstart/answer.json").exists()


def test_a_store_that_is_too_small_says_how_much_a_fit_wants(tmp_path):
    app = create(LanceApp(tmp_path), rows=60)
    with pytest.raises(BadInput, match="a fit wants 50"):
        ask(app, tmp_path / "out", rows=5000, held=2000)


def test_of_several_columns_of_text_one_has_to_be_named(tmp_path):
    import lance
    import pyarrow as pa

    texts = models.texts_of(80)
    vectors = pa.FixedSizeListArray.from_arrays(models.old(texts).ravel(), models.D)
    table = pa.table({"id": range(80), "head": texts, "body": texts, "vector": vectors})
    lance.write_dataset(table, tmp_path / "two.lance")
    with pytest.raises(BadInput, match=r"Columns of text: head, body → name it with --source"):
        package.quickstart(tmp_path / "two.lance", tmp_path / "out", embed=models.new)


def test_a_store_that_is_being_migrated_is_left_alone(asked, tmp_path):
    app, folder, _ = asked
    place = tmp_path / "moving.lance"
    shutil.copytree(app.address, place)
    migration = Migration(place, folder / "upgrade")
    migration.start(evaluation=folder / "evaluation.json", plan=folder / "plan")
    with pytest.raises(BadInput, match=r"a migration to .* is under way"):
        package.quickstart(place, tmp_path / "out", embed=models.new)


def test_the_call_is_there_after_its_package_was_imported():
    importlib.import_module("crossfade.assessment.quickstart")
    assert callable(package.quickstart)


def test_the_tour_makes_its_own_table_and_ends_with_commands(crossfade, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = crossfade("quickstart", "--rows", 60, "--held", 60, "--lookups", 50)
    assert ran.code in (0, 1), ran.err
    answer = json.loads(Path("quickstart/answer.json").read_text())
    assert (answer["rows"], answer["old_dim"], answer["new_dim"]) == (2000, 256, 384)
    assert answer["stages"][0]["gallery"] == 2000
    assert "quickstart/texts.lance" in ran.out
    assert ("to carry it out" in ran.out) == bool(answer["commands"])
