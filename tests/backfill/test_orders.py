"""Orders: what they put first, and that they are the same however the gallery is stored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossfade import Upgrade, plan
from crossfade.backfill import ORDERS, AlignmentError, Groups, Items, combined, positions
from crossfade.backfill.items import add_rows
from crossfade.backfill.orders import _other, load_learned, order_named, saved_tensors
from crossfade.backfill.plan import Plan
from crossfade.compatibility import Held
from crossfade.errors import BadInput
from crossfade.pairs import Pairs


def gallery(rows=60, seed=0, classes=4, dim=5):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    lifted = (rng.normal(size=(classes, dim))[labels] + rng.normal(size=(rows, dim))).astype("f4")
    return Items(
        ids=rng.permutation(1000)[:rows],
        old=rng.normal(size=(rows, 3)).astype("f4"),
        lifted=lifted,
        labels=labels,
        priority=rng.normal(size=rows),
    )


def part(items, rows):
    return Items(
        *(x[rows] for x in (items.ids, items.old, items.lifted, items.labels, items.priority))
    )


def find_order(name, items, groups, learned=None):
    urgency = (learned or ORDERS[name])(items, groups)
    return items.ids[np.argsort(positions(urgency, items.ids))].tolist()


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_does_not_depend_on_how_the_gallery_is_stored_or_batched(name):
    items = gallery()
    groups = Groups.of_classes([part(items, slice(0, 25)), part(items, slice(25, 60))], classes=4)
    shuffled = part(items, np.random.default_rng(1).permutation(60))
    again = Groups.of_classes([shuffled], classes=4)
    assert np.allclose(groups.means, again.means)
    order = ORDERS[name].learn(items, items.lifted + 0.1 * items.lifted[:, ::-1])
    assert find_order(name, items, groups, order) == find_order(name, shuffled, groups, order)
    halves = [order(part(items, rows), groups) for rows in (slice(0, 20), slice(20, 60))]
    assert np.allclose(np.concatenate(halves), order(items, groups))


def test_far_and_near_are_distances_to_the_class_mean():
    items = gallery()
    groups = Groups.of_classes([items], classes=4)
    means = np.stack([items.lifted[items.labels == c].mean(axis=0) for c in range(4)])
    assert np.allclose(groups.means, means, atol=1e-6)
    own = means[items.labels]
    mse = ((items.lifted - own) ** 2).mean(axis=1)
    assert np.allclose(ORDERS["far-mse"](items, groups), mse, rtol=1e-5)
    assert find_order("near-mse", items, groups) == find_order("far-mse", items, groups)[::-1]
    cosine = (items.lifted * own).sum(axis=1) / (
        np.linalg.norm(items.lifted, axis=1) * np.linalg.norm(own, axis=1)
    )
    assert np.allclose(ORDERS["far-cosine"](items, groups), 1 - cosine, atol=1e-5)


def test_the_smallest_margin_is_first():
    items = gallery()
    groups = Groups.of_classes([items], classes=4)
    gaps = ((items.lifted[:, None] - groups.means[None]) ** 2).sum(axis=2)
    margins = [
        min(gaps[i, c] for c in range(4) if c != label) - gaps[i, label]
        for i, label in enumerate(items.labels)
    ]
    assert np.allclose(-ORDERS["small-margin"](items, groups), margins, atol=1e-4)


def test_a_class_without_items_is_nobodys_other():
    items = gallery()
    three = Items(items.ids, items.old, items.lifted, np.where(items.labels == 3, 0, items.labels))
    with_empty = Groups.of_classes([three], classes=6)
    without = Groups.of_classes([three], classes=3)
    assert with_empty.present.tolist() == [True] * 3 + [False] * 3
    margins = [ORDERS["small-margin"](three, g) for g in (with_empty, without)]
    assert np.allclose(*margins)


def test_an_item_without_a_class_is_compared_with_the_nearest():
    items = gallery()
    groups = Groups.of_classes([items], classes=4)
    bare = Items(items.ids, items.old, items.lifted, np.full(60, -1))
    gaps = ((items.lifted[:, None] - groups.means[None]) ** 2).sum(axis=2)
    assert groups.codes(bare).tolist() == gaps.argmin(axis=1).tolist()
    half = Items(items.ids, items.old, items.lifted, np.where(np.arange(60) < 30, items.labels, -1))
    means = Groups.of_classes([half], classes=4).means
    first = items.labels[:30]
    for c in range(4):
        assert np.allclose(means[c], items.lifted[:30][first == c].mean(axis=0), atol=1e-6)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 10**6))
def test_sums_by_class_are_those_of_a_loop(dim, rows, seed):
    rng = np.random.default_rng(seed)
    x, codes = rng.normal(size=(rows, dim)).astype("f4"), rng.integers(-1, 4, size=rows)
    found, expected = np.zeros((4, dim)), np.zeros((4, dim))
    add_rows(x, codes, found)
    for row, code in zip(x, codes, strict=True):
        if code >= 0:
            expected[code] += row
    assert np.array_equal(found, expected)


def test_random_is_uniform_and_depends_on_the_id_alone():
    ids = np.arange(20_000)
    items = Items(ids, np.empty((20_000, 0)), np.empty((20_000, 0)))
    found = ORDERS["random"](items)
    assert 0 <= found.min() < found.max() < 1
    assert np.bincount((found * 10).astype(int)).min() > 1850
    assert abs(np.corrcoef(ids, found)[0, 1]) < 0.03
    assert ORDERS["random"](part_ids(items, 77)) == found[77]


def part_ids(items, row):
    return Items(items.ids[row : row + 1], items.old[:1], items.lifted[:1])


def test_without_labels_clusters_stand_in_for_classes():
    rng = np.random.default_rng(0)
    centres = 10 * rng.normal(size=(3, 4))
    which = rng.integers(3, size=300)
    lifted = (centres[which] + 0.1 * rng.normal(size=(300, 4))).astype("f4")
    groups = Groups.by_kmeans(lifted, 3)
    items = Items(np.arange(300), lifted, lifted)
    codes = groups.codes(items)
    assert len(np.unique(codes)) == 3
    assert all(len(np.unique(codes[which == c])) == 1 for c in range(3))
    expected = ((lifted - groups.means[codes]) ** 2).mean(axis=1)
    assert np.allclose(ORDERS["far-mse"](items, groups), expected, rtol=1e-4)
    assert np.array_equal(Groups.by_kmeans(lifted, 3).means, groups.means)


def test_the_alignment_error_is_learned_where_it_depends_on_the_item():
    rng = np.random.default_rng(0)
    old = rng.normal(size=(3000, 4)).astype("f4")
    lifted = old @ rng.normal(size=(4, 6)).astype("f4")
    deviation = np.exp(0.8 * old[:, :1])
    mapped = lifted + deviation * rng.normal(size=lifted.shape)
    half = slice(0, 1500)
    order = AlignmentError().learn(Items(np.arange(1500), old[half], lifted[half]), mapped[half])
    unseen = Items(np.arange(1500), old[1500:], lifted[1500:])
    found = order(unseen)
    assert np.corrcoef(found, 2 * np.log(deviation[1500:, 0]))[0, 1] > 0.97
    # Predicted variances are those of the data, and not only in order.
    assert np.mean(found - 2 * np.log(deviation[1500:, 0])) == pytest.approx(0, abs=0.1)


def test_the_alignment_error_is_the_likeliest():
    rng = np.random.default_rng(1)
    old, lifted = rng.normal(size=(2, 200, 3))
    mapped = lifted + rng.normal(size=(200, 3)) * np.exp(old[:, :1] / 2)
    items = Items(np.arange(200), old, lifted)
    order = AlignmentError(penalty=1e-9).learn(items, mapped)
    errors = ((lifted - mapped) ** 2).mean(axis=1)

    def likelihood(log_variance):
        return -(log_variance + errors * np.exp(-log_variance)).sum()

    best = likelihood(order(items))
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(size=6) * 0.05
        x = np.concatenate([old, lifted], axis=1)
        assert likelihood(order(items) + (x - x.mean(axis=0)) @ noise) < best + 1e-6


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.randoms())
def test_ties_go_by_id(urgencies, random):
    ids = list(range(len(urgencies)))
    random.shuffle(ids)
    found = positions(np.array(urgencies, float), np.array(ids))
    expected = sorted(range(len(ids)), key=lambda i: (-urgencies[i], ids[i]))
    assert np.argsort(found).tolist() == expected


@given(st.permutations(range(8)), st.permutations(range(8)))
def test_two_orders_combine_to_one_that_is_between(a, b):
    found = combined(np.array(a), np.array(b))
    assert sorted(found.tolist()) == list(range(8))
    for i in range(8):
        for j in range(8):
            if a[i] < a[j] and b[i] < b[j]:
                assert found[i] < found[j]


@pytest.mark.parametrize("name", [name for name, order in ORDERS.items() if order.by_groups])
def test_orders_by_groups_need_groups(name):
    with pytest.raises(BadInput, match="groups"):
        ORDERS[name](gallery(), None)


def test_what_cannot_be_ordered_is_refused():
    items = gallery()
    bare = Items(items.ids, items.old, items.lifted)
    groups = Groups.of_classes([items], classes=4)
    with pytest.raises(BadInput, match="the items have no priorities"):
        ORDERS["priority"](bare, None)
    with pytest.raises(
        BadInput, match="the gallery has no labels, and the plan was made with some"
    ):
        ORDERS["far-mse"](bare, groups)
    with pytest.raises(BadInput, match="class 3 is unknown to the plan"):
        ORDERS["far-mse"](items, Groups(groups.means[:3], labelled=True))
    with pytest.raises(BadInput, match="the gallery has no labels"):
        Groups.of_classes([bare], classes=4)
    with pytest.raises(BadInput, match="the gallery is empty"):
        Groups.of_classes([], classes=4)
    with pytest.raises(BadInput, match="not finite"):
        positions(np.array([1.0, np.nan]), np.arange(2))
    with pytest.raises(
        BadInput, match="there is no order 'alphabetic' → use one of random, far-mse"
    ):
        order_named("alphabetic")
    with pytest.raises(BadInput, match="at least two pairs"):
        AlignmentError().learn(part(items, slice(0, 1)), items.lifted[:1])
    with pytest.raises(BadInput, match="is learned from pairs before"):
        ORDERS["alignment-error"](items)


def test_what_an_order_has_learned_is_kept_under_the_names_that_plans_have_had():
    items = gallery()
    order = AlignmentError().learn(items, items.lifted + 0.1 * items.lifted[:, ::-1])
    kept = saved_tensors([order, ORDERS["random"]])
    assert sorted(kept) == [f"alignment.{name}" for name in ("bias", "centre", "scale", "weight")]
    kept |= {"groups.means": np.eye(2), "format": np.ones(1, np.int64)}
    again = load_learned("random+alignment-error", kept)
    assert list(again) == ["alignment-error"]
    assert np.array_equal(again["alignment-error"](items), order(items))
    assert load_learned("random", kept) == {}
    assert load_learned("alignment-error", {"groups.means": np.eye(2)}) == {}


OTHER = """
import numpy as np
from crossfade.backfill.orders import Order

class Longest(Order):
    name, learns = "longest", True
    factor = 1.0

    def learn(self, items, mapped):
        made = Longest()
        made.factor = float(np.abs(mapped).mean())
        return made

    def save(self):
        return {"factor": np.array([self.factor])}

    def load(self, tensors):
        made = Longest()
        made.factor = float(tensors["factor"][0])
        return made

    def __call__(self, items, groups=None, /):
        return self.factor * np.linalg.norm(items.lifted, axis=1)

odd = 7
"""


@pytest.fixture
def another_distribution(tmp_path, monkeypatch):
    (tmp_path / "longest.py").write_text(OTHER)
    described = tmp_path / "longest-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: longest\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        "[crossfade.orders]\nlongest = longest:Longest\nodd = longest:odd\ngone = nowhere:At\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    _other.cache_clear()
    yield
    _other.cache_clear()


def test_another_distribution_adds_an_order_that_learns(another_distribution, tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 10
    new = np.eye(10)[labels] + 0.3 * rng.normal(size=(200, 10))
    old = new[:, :6] + 0.4 * rng.normal(size=(200, 6))
    upgrade = Upgrade(solver="closed_form").fit(old[:100], new[:100], labels[:100])
    held = Held.of(Pairs.from_arrays(old[100:], new[100:], labels[100:]))
    made = plan(upgrade, held, optimize=["mAP"], orders=["longest"], blends=[1.0])
    made.save(tmp_path / "plan")
    again = Plan.load(tmp_path / "plan", upgrade)
    items = gallery()
    assert again.learned["longest"].factor == made.learned["longest"].factor != 1.0
    assert np.array_equal(again.learned["longest"](items), made.learned["longest"](items))


def test_an_order_of_another_distribution_that_is_none_is_told(another_distribution):
    with pytest.raises(
        BadInput, match=r"the order 'odd': longest:odd is no Order → mend or uninst"
    ):
        order_named("odd")
    with pytest.raises(BadInput, match=r"the order 'gone': cannot be loaded \(ModuleNotFoundError"):
        order_named("gone")
    with pytest.raises(BadInput, match=r"use one of random, far-mse.*, longest, odd, gone"):
        order_named("none")
