"""Both models on the query, on every store and at every stage, against a ranking made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.migration.conftest import ROWS, Function, lifted_of, texts_of

from crossfade.asking import DEFAULT, Weights
from crossfade.errors import BadInput
from crossfade.journal.journal import load_journal, save_journal
from crossfade.search.sampling import KEY
from crossfade.stores.sampling import draw_ids

QUERIES = texts_of(12, seed=321)
DEPTH = 20


def cosines(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    return rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)


def by_hand(world, texts, shared, filled, text, lifted, weights=DEFAULT) -> tuple[dict, list]:
    """Scores of `both`: what each model says, in deviations; and those of the ten best rows among
    the first twenty of each side. Rows may share a vector, so rows themselves are not compared."""
    keys = sorted(texts)
    old = world.models.old([texts[key] for key in keys])
    ask_old, ask_new = world.models.old([text])[0], world.models.new([text])[0]
    mapped = world.upgrade.backward(ask_new)
    on_old = np.zeros(old.shape[1])
    on_old[:] = mapped[: old.shape[1]]

    def z(scores, among):
        return (scores - scores[among].mean()) / scores[among].std()

    everyone = np.arange(len(keys))
    # What B says of a row is less where its second to eleventh neighbour are near.
    unit = old / np.linalg.norm(old, axis=1, keepdims=True)
    crowd = np.sort(unit @ unit.T, axis=1)[:, -11:-1].mean(axis=1)
    by_old, second = z(cosines(old, ask_old), everyone), cosines(old, on_old)
    by_backward = z(second - 0.5 * crowd, everyone)
    few = weights.old_backward
    score = (1 - few) * by_old + few * by_backward
    if lifted:
        rows = np.array([shared[key] for key in keys])
        is_filled = np.array([key in filled for key in keys])
        second = cosines(rows, ask_new)
        b, f, w = weights.lifted_backward, weights.lifted_forward, weights.filled_new
        all_lifted = cosines(lifted_of(world, [texts[key] for key in keys]), ask_new)
        by_forward = (second - all_lifted.mean()) / all_lifted.std()
        late = np.array([key == 9000 for key in keys])
        as_lifted = (1 - b - f) * by_old + b * by_backward + f * by_forward
        score = np.where(is_filled | late, score, as_lifted)
        if is_filled.sum() >= 30:
            by_new = z(second, np.flatnonzero(is_filled))
            score = np.where(is_filled, (1 - w) * by_old + w * by_new, score)
    first = {*np.argsort(-by_old)[:DEPTH].tolist(), *np.argsort(-second)[:DEPTH].tolist()}
    return dict(zip(keys, score, strict=True)), sorted(-score[i] for i in first)[:10]


def asked(world, searcher, text, **more) -> list:
    old, new = world.models.old([text])[0], world.models.new([text])[0]
    return [hit.id for hit in searcher.search(new, old=old, **({"ask": "both"} | more))]


def test_before_anything_is_lifted(world, migration):
    migration.start(source="body", force=True)
    searcher = migration.searcher(refresh=0)
    for text in QUERIES:
        scores, best = by_hand(world, world.texts, {}, (), text, False)
        found = asked(world, searcher, text)
        np.testing.assert_allclose([-scores[key] for key in found], best, atol=1e-4)


OTHERS = Weights(old_backward=0.5, lifted_backward=0.1, lifted_forward=0.6, filled_new=0.9)


@pytest.mark.parametrize(
    ("share", "weights"), [(0.0, DEFAULT), (0.3, DEFAULT), (1.0, DEFAULT), (0.3, OTHERS)]
)
def test_while_rows_are_filled(world, lifted, plan_folder, share, weights):
    texts = dict(world.texts)
    lifted.backfill(Function(world.models), plan=plan_folder, labels="kind", share=share)
    # Rows come, change and go meanwhile.
    come = texts_of(2, seed=17)
    world.app.insert([9000], come[:1], [0], world.models.old(come[:1]))
    world.app.delete(5)
    texts[9000] = come[0]
    del texts[5]
    from tests.migration.conftest import shared_of

    rows = shared_of(lifted)
    filled = {key for key, (state, _) in rows.items() if state == "filled"}
    late = lifted_of(world, come[:1])[0]
    shared = {key: vector for key, (_, vector) in rows.items()} | {9000: late}
    lifted.store.put(KEY, None)
    # As a plan would have it.
    save_journal(lifted.store, load_journal(lifted.store).after(weights=weights))
    searcher = lifted.searcher(refresh=0)
    for text in QUERIES:
        scores, best = by_hand(world, texts, shared, filled, text, True, weights)
        found = asked(world, searcher, text)
        np.testing.assert_allclose([-scores[key] for key in found], best, atol=1e-4)
    assert 9000 in asked(world, searcher, come[0])
    assert 5 not in asked(world, searcher, world.texts[5], k=50)


def test_filters_and_columns_are_those_of_any_search(world, lifted):
    searcher = lifted.searcher(refresh=0)
    text = world.texts[3]
    kind = ord(text[0])
    new, old = world.models.new([text])[0], world.models.old([text])[0]
    hits = searcher.search(new, 5, old=old, where={"kind": kind}, columns=["kind", "body"])
    assert hits[0].values == {"kind": kind, "body": world.texts[hits[0].id]}
    assert {hit.values["kind"] for hit in hits} == {kind}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_after_the_end_the_new_model_is_asked_alone(world, lifted):
    lifted.finish(force=True)
    searcher = lifted.searcher(refresh=0)
    text = world.texts[3]
    assert lifted.store.get(KEY) is None
    alone = [hit.id for hit in searcher.search(world.models.new([text])[0])]
    assert asked(world, searcher, text) == alone


def test_one_vector_of_both(world, migration):
    migration.start(source="body", force=True)
    searcher = migration.searcher(refresh=0)
    text = world.texts[8]
    old = world.models.old(list(world.texts.values()))
    mapped = world.upgrade.backward(world.models.new([text])[0])[: old.shape[1]]
    ask = world.models.old([text])[0]
    mixed = 0.3 * mapped / np.linalg.norm(mapped) + 0.7 * ask / np.linalg.norm(ask)
    expected = np.argsort(-cosines(old, mixed), kind="stable")[:10].tolist()
    found = asked(world, searcher, text, ask="blend")
    assert found == expected
    migration.forward()
    assert asked(world, searcher, text, ask="blend") == expected


def test_many_queries_at_once(world, lifted):
    searcher = lifted.searcher()
    new, old = world.models.new(QUERIES), world.models.old(QUERIES)
    many = searcher.search_many(new, 7, old=old)
    for row, hits in enumerate(many):
        alone = searcher.search(new[row], 7, old=old[row])
        assert [hit.id for hit in hits] == [hit.id for hit in alone]
    with pytest.raises(BadInput, match="do not go together"):
        searcher.search_many(new, old=old[:3])


def test_what_cannot_be_asked_is_told(world, lifted):
    searcher = lifted.searcher()
    new, old = world.models.new(QUERIES)[0], world.models.old(QUERIES)[0]
    with pytest.raises(BadInput, match="no query"):
        searcher.search()
    with pytest.raises(BadInput, match="needs the old model's query"):
        searcher.search(new, ask="both")
    with pytest.raises(BadInput, match="needs the new model's query"):
        searcher.search(old=old, ask="new")
    with pytest.raises(BadInput, match=r"new query is of shape \(12,\)"):
        searcher.search(old, old=new)
    with pytest.raises(BadInput, match=r"old query is of shape \(16,\)"):
        searcher.search(new, old=new)
    with pytest.raises(BadInput, match="no way 'loudly'"):
        searcher.search(new, ask="loudly")


def test_a_sample_that_was_lost_is_drawn_again(world, lifted):
    text = world.texts[3]
    before = asked(world, lifted.searcher(), text)
    for garbled in ("[]", "[1, 2", '{"rows": 3}', "[[1]]", "[null]"):
        lifted.store.put(KEY, garbled)
        assert asked(world, lifted.searcher(), text) == before
    ids = draw_ids(lifted.store, 50)
    assert len(set(ids)) == 50
    assert len(draw_ids(lifted.store, 10 * ROWS)) == ROWS
