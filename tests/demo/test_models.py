"""Both models of the example work without a network and find what a reader would find."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from crossfade.demo.models import NEW_DIMENSION, OLD_DIMENSION
from crossfade.embedders import embed_checked, open_embedder

DOCUMENTS = [
    "The cat sleeps on the sofa all day long.",
    "Interest rates rose again this quarter, and shares fell.",
    "Solve a linear system by LU decomposition with partial pivoting.",
]
QUERIES = ["a pet resting on furniture", "central bank and stock market", "matrix factorization"]


@pytest.mark.parametrize(
    ("name", "dimension"), [("embed_old", OLD_DIMENSION), ("embed_new", NEW_DIMENSION)]
)
def test_a_model_embeds_as_an_embedder_of_the_command_line(name, dimension):
    embedder = open_embedder(f"crossfade.demo.models:{name}")
    documents = embed_checked(embedder, ["a", "b", "c"], DOCUMENTS, dimension)
    queries = embed_checked(embedder, ["a", "b", "c"], QUERIES, dimension)
    assert np.linalg.norm(documents, axis=1) == pytest.approx(np.ones(3), abs=1e-3)
    assert (queries @ documents.T).argmax(axis=1).tolist() == [0, 1, 2]
    # One at a time or together: padding must not change a vector.
    one = embed_checked(embedder, ["c"], DOCUMENTS[2:], dimension)
    assert one[0] == pytest.approx(documents[2], abs=1e-4)


def test_neither_model_asks_the_network():
    script = (
        "import socket\n"
        "def refuse(*_, **__): raise SystemExit('the network was asked')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from crossfade.demo.models import embed_new, embed_old\n"
        "print(embed_old(['a text']).shape, embed_new(['a text']).shape)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "(1, 256) (1, 384)\n"
    assert ran.stderr == ""
