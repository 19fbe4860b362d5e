"""A function of the user's own as embedder."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.embedders import CallableEmbedder, embed_checked, open_callable
from crossfade.errors import BadInput, BudgetSpent, EmbedderError

SOURCE = """
import sys
DIMENSION = 2
def lengths(texts):
    assert type(texts) is list
    return [[float(len(text)), 1.0] for text in texts]
def fails(texts):
    raise KeyError("no such model\\nand more")
async def later(texts):
    return []
class Model:
    def __call__(self, texts):
        return lengths(texts)
    def embed(self, texts):
        return lengths(texts)
model = Model()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(SOURCE)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("")
    (tmp_path / "my_package" / "inner.py").write_text(SOURCE)
    (tmp_path / "needs_more.py").write_text("import a_package_that_is_not_installed")
    (tmp_path / "broken.py").write_text("def embed(:")
    (tmp_path / "unwilling.py").write_text("raise RuntimeError('no GPU')")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "my_models:lengths",
        "my_models:model",
        "my_models:model.embed",
        "my_package.inner:lengths",
    ],
)
def test_a_function_of_the_working_directory_is_found(folder, text):
    embedder = open_callable(text)
    assert embedder.name == text
    assert embedder.needs_source
    vectors = embed_checked(embedder, ["a", 2], ["one", "three"], 2)
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[3.0, 1.0], [5.0, 1.0]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("my_modles:lengths", "there is no module 'my_modles' here or among the installed"),
        ("my_package.outer:lengths", "there is no module 'my_package.outer' here"),
        ("my_models:length", "the module 'my_models' has no 'length' → name a function of it"),
        ("my_models:model.fit", "the module 'my_models' has no 'model.fit'"),
        ("my_models:DIMENSION", "is of type int → name a function that takes a list of texts"),
        ("my_models:Model", "is a class, not a function"),
        ("my_models:later", "is an async function"),
        ("needs_more:embed", "importing 'needs_more' raised ModuleNotFoundError: No module named"),
        ("broken:embed", "importing 'broken' raised SyntaxError"),
        ("unwilling:embed", "importing 'unwilling' raised RuntimeError: no GPU → see what"),
        ("my_models", "is not of the form module:function"),
        ("my_models:lengths()", "is not of the form module:function"),
        ("my_models:__import__('os')", "is not of the form module:function"),
    ],
)
def test_what_cannot_be_called_is_bad_usage(folder, text, says):
    with pytest.raises(BadInput, match=says.replace("(", r"\(")):
        open_callable(text)


def test_an_exception_names_the_function_and_is_kept(folder):
    embedder = open_callable("my_models:fails")
    with pytest.raises(EmbedderError) as raised:
        embed_checked(embedder, ["a", "b"], ["one", "two"], 2)
    assert str(raised.value) == (
        "my_models:fails: raised KeyError: 'no such model\\nand more' on 2 items, the first of "
        "them 'a' → call it with these texts to see why, then resume"
    )
    assert isinstance(raised.value.__cause__, KeyError)


def test_a_function_may_stop_for_reasons_of_its_own():
    def stops(texts):
        raise BudgetSpent("the card is empty")

    with pytest.raises(BudgetSpent, match="the card is empty"):
        CallableEmbedder(stops, "stops").embed(["a"], ["one"])


def test_ctrl_c_is_not_an_error_of_the_function():
    def interrupted(texts):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CallableEmbedder(interrupted, "interrupted").embed(["a"], ["one"])
