"""What every baseline keeps of `Upgrade`: fit, apply, save, load, evaluate, parameters."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from crossfade import BadInput, Held, Pairs, Upgrade, evaluate
from crossfade.baselines import (
    FCT,
    SRIP,
    DriftAdapter,
    FastFill,
    Procrustes,
    Ridge,
    SoftOrthogonality,
)
from crossfade.cases import CASES
from crossfade.compatibility.verdicts import ASKED
from crossfade.errors import BadUpgrade

QUICK = {"epochs": 2, "batch_size": 40, "device": "cpu"}
ALL = {
    "fct": FCT(hidden=(8,), **QUICK),
    "fastfill": FastFill(hidden=(8,), **QUICK),
    "drift procrustes": DriftAdapter(kind="procrustes"),
    "drift low-rank": DriftAdapter(kind="low-rank", rank=3, **QUICK),
    "drift mlp": DriftAdapter(hidden=8, **QUICK),
    "procrustes": Procrustes(),
    "ridge": Ridge(),
    "so": SoftOrthogonality(weight=0.1, **QUICK),
    "srip": SRIP(weight=0.1, **QUICK),
}


@pytest.fixture(scope="module", params=[(6, 8), (8, 6), (6, 6)], ids=["wider", "narrower", "same"])
def data(request, made):
    d, n = request.param
    return made(rows=160, d=d, n=n)


@pytest.fixture(params=ALL, ids=ALL)
def fitted(request, data):
    blank = ALL[request.param]
    return type(blank)(**blank.get_params()).fit(*(x[:120] for x in data))


def test_both_maps_end_in_one_space_and_the_table_has_every_case(fitted, data):
    old, new, labels = (x[120:] for x in data)
    assert fitted.forward(old).shape == fitted.backward(new).shape
    held = Held.of(Pairs.from_arrays(old, new, labels))
    found = evaluate(fitted, held, resamples=100)
    assert tuple(found.cases) == (*CASES, *ASKED)
    assert all(np.isfinite(list(row.values())).all() for row in found.means().values())
    assert fitted.in_shared_space(old).shape == fitted.forward(old).shape


def test_a_saved_baseline_maps_as_before_and_is_an_upgrade_too(fitted, data, tmp_path):
    fitted.save(tmp_path / "baseline")
    again = type(fitted).load(tmp_path / "baseline")
    plain = Upgrade.load(tmp_path / "baseline")
    for other in (again, plain):
        assert np.array_equal(fitted.forward(data.old), other.forward(data.old))
        assert np.array_equal(fitted.backward(data.new), other.backward(data.new))
    assert again.get_params() == fitted.get_params()
    assert again.hash_ == fitted.hash_


def test_parameters_are_those_of_the_constructor():
    fct = FCT(lr=0.01)
    assert fct.set_params(epochs=3).get_params()["epochs"] == 3
    assert repr(fct) == "FCT(epochs=3, lr=0.01)"
    with pytest.raises(BadInput, match="no parameter 'lam'"):
        fct.set_params(lam=3)


def test_another_classs_folder_is_refused(data, tmp_path):
    Ridge().fit(*data).save(tmp_path / "ridge")
    with pytest.raises(BadUpgrade, match=r"was written by Ridge → use Ridge\.load"):
        Procrustes.load(tmp_path / "ridge")
    Upgrade(solver="closed_form").fit(*data).save(tmp_path / "upgrade")
    with pytest.raises(BadUpgrade, match="was written by Upgrade"):
        Ridge.load(tmp_path / "upgrade")


@pytest.mark.parametrize(
    ("blank", "message"),
    [
        (FCT(epochs=0), "epochs=0 must be at least 1"),
        (FastFill(lr=-1.0), r"lr=-1\.0 must be above 0"),
        (DriftAdapter(kind="cubic"), "kind='cubic' is not known"),
        (SRIP(weight=-1.0), "regularizer_weight"),
    ],
)
def test_what_no_training_can_use_is_refused_before_it(blank, message, data):
    with pytest.raises(BadInput, match=message):
        blank.fit(*data)


def test_without_torch_the_closed_forms_work_and_the_others_name_the_extra(tmp_path, data):
    np.savez(tmp_path / "x.npz", **data._asdict())
    script = (
        "import sys\n"
        "import crossfade.baselines as b\n"
        "assert 'torch' not in sys.modules\n"
        "sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "x = np.load(sys.argv[1])\n"
        "data = x['old'], x['new'], x['labels']\n"
        "print(b.Ridge().fit(*data).hash_ == b.Ridge().fit(*data).hash_)\n"
        "try:\n"
        "    b.FCT().fit(*data)\n"
        "except b.fct.BadInput as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "x.npz")], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "True",
        "FCT needs torch, which is not installed → pip install 'crossfade[train]'",
    ]


def test_every_command_reads_a_b_that_is_an_mlp(data, crossfade, tmp_path):
    ALL["drift mlp"].fit(*(x[:120] for x in data)).save(tmp_path / "drift")
    np.savez(tmp_path / "held.npz", **{k: v[120:] for k, v in data._asdict().items()})
    shown = crossfade("inspect", tmp_path / "drift", "--json")
    assert json.loads(shown.out)["lambda"] == {"asked": None, "reached": None}
    assert "B is an mlp" in (tmp_path / "drift" / "README.md").read_text()
    measured = crossfade("evaluate", tmp_path / "drift", tmp_path / "held.npz", "--json", "-")
    assert measured.code in (0, 1)
    assert json.loads(measured.out)["stability"] == {}
