"""The paper's numbers agree with themselves wherever the paper prints one twice."""

from __future__ import annotations

import math

from experiments import published as p


def test_an_orthogonal_b_keeps_new_new_in_every_table():
    for name, table in p.COMPATIBILITY.items():
        assert table[p.OURS, "B(new)/B(new)"] == table[p.INDEPENDENT, "new/new"], name


def test_the_ablations_repeat_the_rows_of_the_tables():
    cub = p.DOWNSTREAM["Table 2 (CUB-200)"]
    cases = ("F(old)/F(old)", "B(new)/F(old)", "B(new)/B(new)")
    assert p.LAMBDA[12][:3] == tuple(cub[p.OURS, case][0] for case in cases)
    assert p.REGULARIZERS[1, "λ = 12"][:4] == p.LAMBDA[12]
    orthogonal, near = p.LOSSES.values()
    vit = p.COMPATIBILITY["Table 1b (ImageNet-1K, ResNet-18 → ViT-L-16)"]
    full = (True, True, True)
    # The paper prints 76.62 in one table and 76.63 in the other for B(new)/B(new).
    assert orthogonal[full][:4] == tuple(vit[p.OURS, case][0] for case in p.LOSS_CASES[:4])
    assert near[full] == tuple(cub[p.OURS, case][0] for case in p.LOSS_CASES)


def test_the_orders_metric_repeats_the_backfilling_tables():
    for areas, orders in zip(p.BACKFILL.values(), p.ORDER_METRIC.values(), strict=True):
        assert areas[p.OURS] == orders["MSE"]


def test_the_strict_row_is_the_new_model_itself():
    new = p.DOWNSTREAM["Table 2 (CUB-200)"][p.INDEPENDENT, "new/new"]
    assert p.LAMBDA[p.STRICT][2] == new[0]
    assert max(row[2] for row in p.LAMBDA.values()) == p.LAMBDA[math.inf][2]
