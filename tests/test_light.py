"""What a query server waits for: imports stay light, and applying needs numpy alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from crossfade import Upgrade


def quick(**options):
    return Upgrade(**{"epochs": 1, "hidden": (4,), "device": "cpu"} | options)


@pytest.fixture(scope="module")
def data(made):
    return made()


def in_a_process(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_importing_crossfade_is_light():
    ran = in_a_process(
        "import sys, time\n"
        "begin = time.process_time()\n"
        "import crossfade\n"
        "assert time.process_time() - begin < 0.3\n"
        "loaded = {'torch', 'scipy', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
        "from crossfade import Upgrade\n"
        "loaded = {'torch', 'scipy', 'pyarrow'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_applying_needs_numpy_alone(tmp_path, data):
    upgrade = quick().fit(*data)
    upgrade.save(tmp_path / "upgrade")
    np.savez(tmp_path / "x.npz", old=data.old, new=data.new)
    ran = in_a_process(
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['torch', 'scipy', 'pyarrow', 'sklearn']))\n"
        "import numpy as np\n"
        "from crossfade import Upgrade\n"
        "folder, x, out = sys.argv[1], np.load(sys.argv[2]), sys.argv[3]\n"
        "upgrade = Upgrade.load(folder)\n"
        "np.savez(out, b=upgrade.backward(x['new']), f=upgrade.forward(x['old']))\n",
        tmp_path / "upgrade",
        tmp_path / "x.npz",
        tmp_path / "y.npz",
    )
    assert ran.returncode == 0, ran.stderr
    y = np.load(tmp_path / "y.npz")
    assert np.array_equal(y["b"], upgrade.backward(data.new))
    assert np.array_equal(y["f"], upgrade.forward(data.old))


def test_without_torch_the_closed_form_works_and_the_others_name_the_extra(tmp_path, data):
    np.savez(tmp_path / "x.npz", **data._asdict())
    ran = in_a_process(
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from crossfade import BadInput, Upgrade\n"
        "from crossfade.errors import MissingExtra\n"
        "x = np.load(sys.argv[1])\n"
        "data = x['old'], x['new'], x['labels']\n"
        "print(Upgrade(solver='closed_form').fit(*data).hash_)\n"
        "for solver in ('fast', 'paper'):\n"
        "    try:\n"
        "        Upgrade(solver=solver).fit(*data)\n"
        "    except MissingExtra as error:\n"
        "        print(error, error.exit_code)\n",
        tmp_path / "x.npz",
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        Upgrade(solver="closed_form").fit(*data).hash_,
        "the solver 'fast' needs torch, which is not installed → pip install 'crossfade[train]' 2",
        "the solver 'paper' needs torch, which is not installed → pip install 'crossfade[train]' 2",
    ]
