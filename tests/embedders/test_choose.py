"""What `--embed` means is decided by a rule that can be told in three lines."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.embedders import (
    BaseEmbedder,
    CallableEmbedder,
    Endpoint,
    EndpointSettings,
    VectorFile,
    open_embedder,
)
from crossfade.errors import BadInput


@pytest.fixture
def folder(tmp_path, monkeypatch):
    np.savez(tmp_path / "new.npz", ids=np.arange(2), vectors=np.eye(2), others=np.eye(2))
    (tmp_path / "my_models.py").write_text("def embed(texts): return [[1.0]] * len(texts)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


SMALL = EndpointSettings(model="small")


def test_each_form_opens_its_kind(folder):
    assert isinstance(open_embedder("https://example.com/v1", endpoint=SMALL), Endpoint)
    assert isinstance(open_embedder("new.npz"), VectorFile)
    assert isinstance(open_embedder("new.npz:others", ids="ids"), VectorFile)
    assert isinstance(open_embedder("my_models:embed"), CallableEmbedder)


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("my_models", {}, "'my_models': is neither an endpoint, nor a file of vectors, nor a"),
        ("", {}, "'': is neither an endpoint"),
        ("my_models:embed(1)", {}, "is neither an endpoint"),
        ("none.parquet", {}, "none.parquet: no such file → check the path"),
        ("my_models.py", {}, "the extension '.py' is not known"),
        ("ftp://example.com", {"endpoint": SMALL}, "is not of the form https://host/path"),
        ("https://example.com/v1", {}, "no model was named → name it with --model"),
        ("https://example.com", {"endpoint": SMALL, "ids": "id"}, "an endpoint was given → leave"),
        ("new.npz", {"endpoint": SMALL}, "is for an endpoint, and a file of vectors was given"),
        ("my_models:embed", {"endpoint": SMALL}, "is for an endpoint, and a function was given"),
        ("my_models:embed", {"ids": "id"}, "is for a file of vectors, and a function was given"),
    ],
)
def test_what_is_none_of_them_is_said(folder, text, options, says):
    with pytest.raises(BadInput, match=says.replace("(", r"\(")):
        open_embedder(text, **options)


class Lengths:
    """What a third party writes: three members and no more."""

    name, needs_source = "lengths", True

    def embed(self, ids, sources):
        return np.array([[len(text)] for text in sources], np.float32)


def test_an_embedder_with_three_members_has_the_others_by_default():
    embedder = open_embedder(Lengths())
    assert isinstance(embedder, BaseEmbedder)
    assert (embedder.name, embedder.needs_source, embedder.prepared) == ("lengths", True, False)
    assert embedder.spent == 0.0
    assert embedder.has(["a", "b"]).all()
    texts = ["x" * n for n in range(600)]
    (parts,) = embedder.embed_parts(range(600), texts)
    assert [len(rows) for rows, _ in parts] == [256, 256, 88]
    assert np.concatenate([vectors for _, vectors in parts])[:, 0].tolist() == list(range(600))
    with embedder.keeping_spend(7.0, lambda _: pytest.fail("nothing is spent")):
        embedder.embed(["a"], ["x"])
    assert open_embedder(embedder) is embedder


def test_what_was_made_beforehand_says_so(folder):
    file = open_embedder("new.npz")
    assert file.prepared
    assert file.has([0, 7]).tolist() == [True, False]


@pytest.fixture
def another_distribution(tmp_path, monkeypatch):
    (tmp_path / "lengths.py").write_text(
        "import numpy as np\n"
        "class Lengths:\n"
        "    name, needs_source = 'lengths', True\n"
        "    def embed(self, ids, sources): return np.array([[len(t)] for t in sources], 'f4')\n"
        "def opened(address):\n"
        "    assert address == 'lengths://secret-key@here'\n"
        "    return Lengths()\n"
        "def fails(address): raise KeyError(address)\n"
    )
    described = tmp_path / "lengths-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: lengths\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        "[crossfade.embedders]\nlengths = lengths:opened\nbad = lengths:fails\nodd = builtins:len\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_another_distribution_opens_the_addresses_of_its_scheme(another_distribution):
    embedder = open_embedder("lengths://secret-key@here")
    assert embedder.embed(["a"], ["three"]).tolist() == [[5.0]]
    with pytest.raises(BadInput, match="is for an endpoint, and lengths was given"):
        open_embedder("lengths://secret-key@here", endpoint=SMALL)
    with pytest.raises(
        BadInput, match="the embedder of bad://: raised KeyError → mend or un"
    ) as bad:
        open_embedder("bad://secret-key")
    assert "secret-key" not in str(bad.value)
    with pytest.raises(BadInput, match="the embedder of odd://: gave a int, which is no embedder"):
        open_embedder("odd://x")
