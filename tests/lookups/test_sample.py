"""Pairs and lookups from every store: what is in the file, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lookups import models
from tests.stores.apps import ParquetApp

from crossfade import Pairs, Upgrade, read_held, sample_pairs
from crossfade.errors import BadInput, EmbedderError
from crossfade.lookups.text import lookup_of


@pytest.fixture
def plain(tmp_path):
    """One store, for what does not depend on which it is."""
    made = ParquetApp(tmp_path)
    texts = models.texts_of(300)
    made.create(list(range(300)), texts, [n % 4 for n in range(300)], models.old(texts))
    return made


def sampled(place, path, **options):
    wanted = {"rows": 200, "held": 100, "lookups": 60, "source": "body"} | options
    made = sample_pairs(place, path, embed=models.new, **wanted)
    with np.load(path) as arrays:
        return made, dict(arrays)


def test_what_is_in_the_file_is_what_the_store_and_the_models_say(app, texts, tmp_path):
    before = app.old()
    made, arrays = sampled(app.address, tmp_path / "pairs.npz", embed_old=models.old)
    assert (made.rows, made.held, made.lookups) == (200, 100, 60)
    stored = app.old()
    assert all(np.array_equal(stored[key], row) for key, row in before.items())
    for ids, side in (("ids", ""), ("held_ids", "held_")):
        keys = arrays[ids].tolist()
        # Qdrant's library scales vectors as it gives them, to the last bit but one.
        close = 1e-6 if app.unit_length else 0.0
        np.testing.assert_allclose(arrays[f"{side}old"], [stored[key] for key in keys], rtol=close)
        expected = models.new([texts[key] for key in keys])
        np.testing.assert_allclose(arrays[f"{side}new"], expected, rtol=1e-6)
    # Nothing that is judged by was learned from.
    assert not set(arrays["ids"].tolist()) & set(arrays["held_ids"].tolist())
    wanted = [texts[key] for key in arrays["held_ids"][arrays["lookup_items"]].tolist()]
    first_sentences = [text.split(". ")[0] + "." for text in wanted]
    np.testing.assert_allclose(arrays["lookup_old"], models.old(first_sentences), rtol=1e-6)
    np.testing.assert_allclose(arrays["lookup_new"], models.new(first_sentences), rtol=1e-6)


def test_the_same_seed_samples_the_same_rows_and_another_others(plain, tmp_path):
    one, two, three = (
        sampled(plain.address, tmp_path / f"{name}.npz", rows=100, held=50, seed=seed)[1]
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert set(one["ids"].tolist()) != set(three["ids"].tolist())
    assert set(two) == {
        *("old", "new", "ids", "held_old", "held_new", "held_ids"),
        *("lookup_new", "lookup_items"),
    }


def test_safetensors_holds_the_same_arrays(plain, tmp_path):
    _, arrays = sampled(plain.address, tmp_path / "pairs.npz", embed_old=models.old)
    options = {"rows": 200, "held": 100, "lookups": 60, "source": "body"}
    path = tmp_path / "pairs.safetensors"
    sample_pairs(plain.address, path, embed=models.new, embed_old=models.old, **options)
    from safetensors.numpy import load_file

    loaded = load_file(path)
    assert set(loaded) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name], array)
    assert read_held(path).gallery_ids.tolist() == arrays["held_ids"].tolist()


def test_text_ids_go_to_npz_and_not_to_safetensors(tmp_path):
    app = ParquetApp(tmp_path)
    texts = models.texts_of(200)
    keys = [f"doc-{n}" for n in range(200)]
    app.create(keys, texts, [0] * 200, models.old(texts))
    with pytest.raises(BadInput, match="holds no text"):
        sample_pairs(app.address, tmp_path / "p.safetensors", embed=models.new, source="body")
    sampled(app.address, tmp_path / "p.npz")
    assert set(read_held(tmp_path / "p.npz").gallery_ids.tolist()) <= set(keys)


def test_a_small_store_is_divided_in_the_same_proportion(plain, tmp_path):
    made, _ = sampled(plain.address, tmp_path / "pairs.npz", rows=5000, held=2500, lookups=500)
    assert (made.rows, made.held, made.lookups) == (200, 100, 100)
    assert "only 300 rows of 7,500 could be sampled" in made.warnings


def test_rows_of_which_nothing_can_be_made_are_counted(plain, tmp_path):
    texts = ["", "   ", models.texts_of(300)[5], "a short text"]
    plain.insert([900, 901, 902, 903], texts, [0] * 4, models.old(["a", "b", "c", "d"]))
    plain.empty(7)
    made, arrays = sampled(plain.address, tmp_path / "pairs.npz", rows=300, held=700, lookups=700)
    assert made.left_out == {
        "without a usable vector": 1,
        "without text": 2,
        "with the same text as another": 1,
        **({"too short for a lookup": 1} if 903 in arrays["held_ids"] else {}),
    }
    assert made.rows + made.held == 300


def test_a_title_is_the_lookup_where_one_is_named(plain, tmp_path):
    _, arrays = sampled(plain.address, tmp_path / "pairs.npz", title="body", lookups=20)
    whole = arrays["held_new"][arrays["lookup_items"]]
    np.testing.assert_allclose(arrays["lookup_new"], whole, rtol=1e-6)


def test_queries_of_a_log_are_learned_from_like_rows(plain, tmp_path):
    log = models.texts_of(30, seed=77)
    (tmp_path / "log.txt").write_text("\n".join([*log, log[0], ""]), encoding="utf-8")
    path = tmp_path / "pairs.npz"
    made, arrays = sampled(
        plain.address, path, embed_old=models.old, queries=tmp_path / "log.txt", lookups=10
    )
    assert made.logged_queries == 30
    np.testing.assert_allclose(arrays["log_old"], models.old(log), rtol=1e-6)
    pairs = Pairs.open(path).load()
    assert pairs.rows == 230
    np.testing.assert_array_equal(pairs.old, np.concatenate([arrays["old"], arrays["log_old"]]))
    np.testing.assert_array_equal(pairs.new, np.concatenate([arrays["new"], arrays["log_new"]]))
    sizes = [len(batch.old) for batch in Pairs.open(path).batches(64)]
    assert sizes == [64, 64, 64, 38]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_log_may_be_a_column_and_is_sampled_where_it_is_long(plain, tmp_path, kind):
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    table = pa.table({"text": models.texts_of(500, seed=3), "count": list(range(500))})
    path = tmp_path / f"log.{kind}"
    (pa.csv.write_csv if kind == "csv" else pq.write_table)(table, path)
    options = {"rows": 100, "lookups": 10, "embed_old": models.old}
    made, _ = sampled(plain.address, tmp_path / "p.npz", queries=f"{path}:text", **options)
    assert made.logged_queries == 100
    assert "of 500 distinct queries of the log 100 by chance" in made.warnings
    for place, cause in ((path, "which column"), (f"{path}:word", "no column 'word'")):
        with pytest.raises(BadInput, match=cause):
            sampled(plain.address, tmp_path / "q.npz", queries=place, **options)
    with pytest.raises(BadInput, match="name a column of texts"):
        sampled(plain.address, tmp_path / "q.npz", queries=f"{path}:count", **options)


def write_log(path, arrays):
    """The same columns in each format that has room for them."""
    if path.suffix == ".npz":
        np.savez(path, **{name: np.asarray(x) for name, x in arrays.items()})
    elif path.suffix == ".safetensors":
        from safetensors.numpy import save_file

        save_file(arrays, path)
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: list(x) for name, x in arrays.items()}
        pq.write_table(pa.table(columns), path)


@pytest.mark.parametrize("kind", ["npz", "parquet", "safetensors"])
def test_stored_vectors_of_a_log_are_learned_from_where_the_old_model_is_gone(
    plain, tmp_path, kind
):
    texts = models.texts_of(80, seed=77)
    log = {"old": models.old(texts), "new": models.new(texts)}
    # The same question again is the same query.
    write_log(
        tmp_path / f"log.{kind}", {side: np.concatenate([x, x[:9]]) for side, x in log.items()}
    )
    path = tmp_path / "pairs.npz"
    made, arrays = sampled(plain.address, path, queries=tmp_path / f"log.{kind}")
    assert made.logged_queries == 80
    np.testing.assert_array_equal(arrays["log_old"], log["old"])
    np.testing.assert_array_equal(arrays["log_new"], log["new"])
    upgrade = Upgrade(solver="closed_form").fit(Pairs.open(path))
    assert upgrade.config_.fit["rows"] == 280
    assert "lookup_old" not in arrays
    assert read_held(path).queries == 60


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_old_vectors_beside_the_texts_of_a_log_need_the_new_model_alone(plain, tmp_path, kind):
    texts = models.texts_of(70, seed=78)
    log = {"old": models.old(texts), "question": texts}
    write_log(tmp_path / f"log.{kind}", log)
    made, arrays = sampled(
        plain.address, tmp_path / "pairs.npz", queries=f"{tmp_path / f'log.{kind}'}:question"
    )
    assert made.logged_queries == 70
    np.testing.assert_array_equal(arrays["log_old"], log["old"])
    np.testing.assert_allclose(arrays["log_new"], models.new(texts), rtol=1e-6)


def test_a_long_log_of_vectors_is_sampled_and_its_sides_stay_together(plain, tmp_path):
    texts = models.texts_of(400, seed=79)
    old, new = models.old(texts), models.new(texts)
    np.savez(tmp_path / "log.npz", old=old, new=new)
    made, arrays = sampled(
        plain.address, tmp_path / "pairs.npz", queries=tmp_path / "log.npz", rows=100
    )
    assert "of 400 distinct queries of the log 100 by chance" in made.warnings
    rows = [int(np.flatnonzero((old == one).all(axis=1))[0]) for one in arrays["log_old"]]
    assert rows == sorted(set(rows))
    np.testing.assert_array_equal(arrays["log_new"], new[rows])


def test_without_the_old_model_it_is_said_what_the_next_steps_do(plain, tmp_path):
    made, _ = sampled(plain.address, tmp_path / "pairs.npz")
    assert any(
        "evaluate judges nothing and plan asks `new` alone" in text for text in made.warnings
    )


LOGGED = models.texts_of(60, seed=80)
OLD, NEW = models.old(LOGGED), models.new(LOGGED)


def with_a(number, x, row=17):
    x = x.copy()
    x[row] = number
    return x


@pytest.mark.parametrize(
    ("name", "log", "cause"),
    [
        ("log.npz", {"old": NEW, "new": OLD}, "'old' has 24 dimensions where the store's vectors"),
        ("log.npz", {"old": OLD, "new": NEW[:, :20]}, "24 dimensions, and 'new' of the logged"),
        ("log.npz", {"old": OLD, "new": NEW[:50]}, "60 rows in 'old' and 50 rows in 'new'"),
        ("log.npz:q", {"old": OLD, "q": LOGGED[:5]}, "60 rows in 'old' and 5 rows in 'q'"),
        ("log.npz", {"old": with_a(np.nan, OLD), "new": NEW}, "row 17 of 'old' has a NaN"),
        ("log.parquet", {"old": OLD, "new": with_a(0, NEW)}, "row 17 of 'new' is all zeros"),
        ("log.npz", {"old": OLD, "new": NEW[::-1]}, "does not belong to row i of 'new'"),
        ("log.npz", {"old": OLD, "new": OLD}, "'old' and 'new' hold the same vectors"),
        ("log.npz", {"old": OLD, "q": LOGGED}, "which column"),
        ("log.npz:text", {"old": OLD, "q": LOGGED}, "no column 'text' → name one of old, q"),
        ("log.npz:n", {"old": OLD, "n": np.arange(60)}, "'n' holds int64"),
        ("log.npz:q", {"new": NEW, "q": LOGGED}, "or their vectors are stored → add --embed-old"),
        ("log.safetensors", {"old": OLD}, "no 'new' vectors, and a .safetensors file holds no"),
    ],
)
def test_a_log_that_does_not_fit_is_refused_before_rows_are_paid_for(
    plain, tmp_path, name, log, cause
):
    write_log(tmp_path / name.partition(":")[0], log)
    asked = []

    def counting(texts):
        asked.append(len(texts))
        return models.new(texts)

    with pytest.raises(BadInput) as refused:
        sample_pairs(
            plain.address, tmp_path / "pairs.npz", embed=counting, source="body", rows=200,
            held=100, queries=tmp_path / name,
        )  # fmt: skip
    assert cause in str(refused.value)
    assert not (tmp_path / "pairs.npz").exists()
    # Only the new model's own answer tells how long its vectors are.
    assert len(asked) == (1 if "of the logged" in cause else 0)


def test_a_file_of_vectors_cannot_embed_the_texts_of_a_log(plain, tmp_path):
    texts = models.texts_of(300)
    np.savez(tmp_path / "new.npz", ids=np.arange(300), vectors=models.new(texts))
    np.savez(tmp_path / "log.npz", old=OLD, q=np.array(LOGGED))
    options = {"source": "body", "rows": 100, "held": 50, "lookups": 0}
    with pytest.raises(BadInput, match="a file of vectors cannot embed logged queries"):
        sample_pairs(
            plain.address, tmp_path / "p.npz", embed=str(tmp_path / "new.npz"),
            queries=f"{tmp_path / 'log.npz'}:q", **options,
        )  # fmt: skip
    np.savez(tmp_path / "log.npz", old=OLD, new=NEW)
    made = sample_pairs(
        plain.address, tmp_path / "p.npz", embed=str(tmp_path / "new.npz"),
        queries=tmp_path / "log.npz", **options,
    )  # fmt: skip
    assert made.logged_queries == 60


def test_labels_come_along_and_judge_where_there_are_no_lookups(plain, tmp_path):
    _, arrays = sampled(plain.address, tmp_path / "pairs.npz", labels="kind", lookups=0)
    assert (arrays["labels"] == arrays["ids"] % 4).all()
    assert (arrays["held_labels"] == arrays["held_ids"] % 4).all()
    held = read_held(tmp_path / "pairs.npz")
    assert (held.source, held.queries) == ("labels", 100)


def test_a_file_of_vectors_is_sampled_where_it_has_any(plain, tmp_path):
    keys = np.arange(100, 260)
    texts = models.texts_of(300)
    np.savez(tmp_path / "new.npz", ids=keys, vectors=models.new([texts[key] for key in keys]))
    options = {"source": "body", "rows": 100, "held": 50}
    with pytest.raises(BadInput, match="cannot embed lookups"):
        sample_pairs(plain.address, tmp_path / "p.npz", embed=str(tmp_path / "new.npz"), **options)
    made = sample_pairs(
        plain.address, tmp_path / "p.npz", embed=str(tmp_path / "new.npz"), lookups=0, **options
    )
    with np.load(tmp_path / "p.npz") as arrays:
        assert set(arrays["ids"].tolist()) <= set(keys.tolist())
        expected = models.new([texts[key] for key in arrays["ids"].tolist()])
        np.testing.assert_allclose(arrays["new"], expected, rtol=1e-6)
    assert made.rows == 100


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"source": "text"}, "has no column 'text'"),
        ({"source": "kind"}, "only 0 pairs could be made"),
        ({"source": None}, "needs the items' text"),
        ({"rows": 0}, "rows is 0"),
        ({"queries": "log.txt"}, "embedded by both models"),
        ({"queries": "log.txt", "labels": "kind", "embed_old": models.old}, "have no labels"),
        ({"embed_old": models.other}, "not the model that filled the store"),
        ({"rows": 20, "held": 270}, "only 20 pairs could be made"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(plain, tmp_path, options, cause):
    with pytest.raises(BadInput, match=cause):
        sampled(plain.address, tmp_path / "pairs.npz", **options)
    assert not list(tmp_path.glob("*pairs*"))


def test_models_that_do_not_fit_are_refused(plain, tmp_path):
    options = {"source": "body", "rows": 100, "held": 50, "lookups": 10}
    with pytest.raises(EmbedderError, match="24 dimensions where the store's vectors have 12"):
        sample_pairs(
            plain.address, tmp_path / "p.npz", embed=models.new, embed_old=models.new, **options
        )
    with pytest.raises(BadInput, match="stored already"):
        sample_pairs(plain.address, tmp_path / "p.npz", embed=models.old, **options)
    with pytest.raises(BadInput, match=r"ends in \.npz or \.safetensors"):
        sample_pairs(plain.address, tmp_path / "p.parquet", embed=models.new, **options)


def test_an_embedder_that_fails_half_way_leaves_the_old_file_as_it_was(plain, tmp_path):
    path = tmp_path / "pairs.npz"
    path.write_bytes(b"before")
    options = {"source": "body", "rows": 200, "held": 100, "overwrite": True}
    asked = []

    def failing(texts):
        asked.append(len(texts))
        if len(asked) > 1:
            raise RuntimeError("out of memory")
        return models.new(texts)

    with pytest.raises(EmbedderError, match="out of memory"):
        sample_pairs(plain.address, path, embed=failing, **options)
    assert len(asked) == 2
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.glob("*pairs*")] == ["pairs.npz"]
    with pytest.raises(BadInput, match="already exists"):
        sample_pairs(plain.address, path, embed=models.new, source="body")


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("What is it? It is this.", "What is it?"),
        ("Mr. X met Mrs. Y. They spoke.", "Mr. X met Mrs."),
        ("Title of the page\nand its body goes on", "Title of the page"),
        ("one two three four five six.", "one two three"),
        ("one two three four five", None),
        ("Version 2.5 of it is out now. Get it.", "Version 2.5 of it is out now."),
        ("猫は一日中寝ている。夜に狩りをする。", "猫は一日中寝ている。"),
        ("", None),
    ],
)
def test_a_lookup_is_the_first_sentence_or_half_of_the_only_one(text, query):
    assert lookup_of(text) == query
