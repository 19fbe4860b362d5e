"""What a fit can be told is checked before any data is read."""

from __future__ import annotations

import math

import pytest

from crossfade.errors import BadInput
from crossfade.solvers.settings import Settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"backward_map": "rotation"}, "use one of orthogonal, near-orthogonal, affine"),
        ({"forward_map": "cnn"}, "forward_map='cnn' is not known → use one of"),
        ({"solver": "slow"}, "solver='slow' is not known → use one of fast"),
        ({"regularizer": "l1"}, "regularizer='l1' is not known"),
        ({"normalize_old": "l1"}, "normalize_old='l1' is not known → use one of l2, none"),
        ({"normalize_new": "max"}, "normalize_new='max' is not known"),
        ({"solver": "closed_form", "forward_map": "mlp"}, "the closed form has no mlp"),
        ({"lam": -1.0}, "lam=-1.0 must not be negative"),
        ({"lam": math.nan}, "lam=nan"),
        ({"w3": -0.5}, "w3=-0.5 must not be negative"),
        ({"temperature": 0.0}, "temperature=0.0 must be above 0"),
        ({"lr": math.inf}, "lr=inf"),
        ({"epochs": 0}, "epochs=0 must be at least 1"),
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"hidden": ()}, "must name at least one width"),
        ({"hidden": (8, 0)}, "each at least 1"),
        ({"validation": 0.0}, "validation=0.0 must be between 0 and 1"),
        ({"validation": 1.0}, "validation=1.0 must be between 0 and 1"),
        ({"select_cases": ()}, "must each name at least one"),
        ({"select_cases": ("B(old)/new",)}, "there is no case named 'B(old)/new' → use one of"),
        (
            {"select_metrics": ("cmc@0",)},
            "there is no metric named 'cmc@0' → use mAP, or one",
        ),
        ({"seed": -1}, "seed=-1 must be at least 0"),
    ],
)
def test_a_wrong_setting_is_named(wrong, message):
    with pytest.raises(BadInput) as caught:
        Settings(**wrong)
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


def test_auto_is_an_mlp_wherever_one_can_be_trained():
    assert Settings(solver="fast").forward_kind == "mlp"
    assert Settings(solver="paper").forward_kind == "mlp"
    assert Settings(solver="closed_form").forward_kind == "affine"
    assert Settings(forward_map="affine").forward_kind == "affine"


def test_no_regularization_is_a_setting():
    assert Settings(lam=math.inf).lam == math.inf
