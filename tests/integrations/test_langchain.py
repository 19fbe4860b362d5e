"""LangChain's own classes over a LanceDB table, at every stage of its migration."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from tests.integrations.stages import are_nearest, asked, stages
from tests.migration.conftest import texts_of, unit

from crossfade import Searcher
from crossfade.errors import BadInput
from crossfade.integrations.langchain import CrossfadeEmbeddings, CrossfadeRetriever


class Model(Embeddings):
    """One of the two models, as LangChain has it."""

    def __init__(self, embed):
        self.embed = embed

    def embed_documents(self, texts):
        return self.embed(texts).tolist()

    def embed_query(self, text):
        return self.embed_documents([text])[0]


@pytest.fixture
def old(world):
    return Model(world.models.old)


@pytest.fixture
def new(world):
    return Model(world.models.new)


def test_at_every_stage_the_applications_own_column_is_asked_right(world, migration, old, new):
    embeddings = CrossfadeEmbeddings(new, world.folder, old=old, store=world.app.address, refresh=0)
    for at, stage in enumerate(stages(world, migration)):
        text = texts_of(1, seed=100 + at)[0]
        query = embeddings.embed_query(text)
        vector = np.array(new.embed_query(text), "f4")
        expected = unit(vector) if stage == "finished" else world.upgrade.query_for_old(vector)
        assert np.allclose(query, expected, atol=1e-6), stage
        assert are_nearest(asked(world, query), expected, world.app.old()), stage
        assert asyncio.run(embeddings.aembed_query(text)) == query


def test_items_that_come_are_written_as_the_column_is(world, migration, old, new):
    embeddings = CrossfadeEmbeddings(
        new, world.upgrade, old=old, store=world.app.address, refresh=0
    )
    for key, stage in enumerate(stages(world, migration), 9000):
        text = texts_of(1, seed=key)[0]
        (vector,) = embeddings.embed_documents([text])
        model = new if stage == "finished" else old
        plain = np.array(model.embed_query(text), "f4")
        assert np.allclose(unit(np.array(vector)), unit(plain), atol=1e-6), stage
        assert asyncio.run(embeddings.aembed_documents([text])) == [vector]
        world.app.insert([key], [text], [0], np.array([vector], "f4"))
        if stage not in ("started", "finished"):
            migration.forward()
    # All of them are found by their own text in the end.
    for key in range(9000, 9005):
        assert key in asked(world, embeddings.embed_query(texts_of(1, seed=key)[0]), k=10)


def test_without_the_old_model_items_are_refused_until_the_end(world, migration, new):
    embeddings = CrossfadeEmbeddings(new, world.upgrade, store=world.app.address, refresh=0)
    for stage in stages(world, migration):
        assert embeddings.embed_documents([]) == []
        if stage == "finished":
            assert len(embeddings.embed_documents(["abc", "def"])) == 2
            continue
        with pytest.raises(BadInput, match=r"written with the old model until .* → pass old="):
            embeddings.embed_documents(["abc"])
        with pytest.raises(BadInput, match="pass old="):
            asyncio.run(embeddings.aembed_documents(["abc"]))


def test_a_vector_store_of_langchain_goes_on_with_its_old_vectors(world, old, new):
    texts = list(world.texts.values())
    store = InMemoryVectorStore(old)
    store.add_texts(texts, ids=[str(n) for n in range(len(texts))])
    store.embedding = CrossfadeEmbeddings(new, world.upgrade, old=old)
    gallery = dict(enumerate(world.models.old(texts)))
    for text in texts_of(10, seed=4):
        query = world.upgrade.query_for_old(world.models.new([text])[0])
        found = [int(document.id) for document in store.similarity_search(text, k=5)]
        assert are_nearest(found, query, gallery)
    store.add_texts(["came since"], ids=["late"])
    assert store.store["late"]["vector"] == old.embed_query("came since")


@pytest.mark.parametrize("with_old", [True, False])
def test_the_retriever_asks_as_the_searcher_does(world, migration, old, new, with_old):
    searcher = Searcher(world.app.address, world.upgrade, refresh=0)
    retriever = CrossfadeRetriever(
        searcher=searcher,
        new=new,
        old=old if with_old else None,
        text="body",
        columns=["kind"],
        k=6,
    )
    for at, stage in enumerate(stages(world, migration)):
        text = texts_of(1, seed=at)[0]
        sides = {"old": world.models.old([text])[0]} if with_old else {}
        hits = searcher.search(world.models.new([text])[0], 6, **sides, columns=["body"])
        found = retriever.invoke(text)
        assert [document.id for document in found] == [str(hit.id) for hit in hits], stage
        assert np.allclose([one.metadata["score"] for one in found], [hit.score for hit in hits])
        for document in found:
            assert document.page_content == world.texts[int(document.id)]
            assert document.metadata["kind"] == ord(document.page_content[0])
        assert asyncio.run(retriever.ainvoke(text)) == found


def test_the_retriever_filters_and_asks_as_told(world, lifted, old, new):
    searcher = Searcher(world.app.address, world.upgrade, refresh=0)
    text = texts_of(1, seed=8)[0]
    retriever = CrossfadeRetriever(
        searcher=searcher, new=new, old=old, text="body", where={"kind": ord("b")}, ask="old"
    )
    found = retriever.invoke(text)
    assert [one.page_content[0] for one in found] == ["b"] * 4
    hits = searcher.search(old=world.models.old([text])[0], k=4, where={"kind": ord("b")})
    assert [one.id for one in found] == [str(hit.id) for hit in hits]


def test_a_missing_extra_is_named():
    script = (
        "import sys\n"
        "sys.modules['langchain_core'] = sys.modules['llama_index'] = None\n"
        "from crossfade.errors import MissingExtra\n"
        "for name in ('langchain', 'llama_index'):\n"
        "    try:\n"
        "        __import__(f'crossfade.integrations.{name}')\n"
        "    except MissingExtra as error:\n"
        "        print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stdout.splitlines() == [
        "crossfade.integrations.langchain needs langchain-core, which is not installed → "
        "pip install 'crossfade[langchain]'",
        "crossfade.integrations.llama_index needs llama-index-core, which is not installed → "
        "pip install 'crossfade[llama-index]'",
    ], ran.stderr
