"""What `--embed` means is decided by a rule that can be told in three lines."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.embedders import (
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
