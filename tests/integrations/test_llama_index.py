"""LlamaIndex's own classes over a LanceDB table, at every stage of its migration."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import TextNode
from tests.integrations.stages import are_nearest, asked, stages
from tests.migration.conftest import texts_of, unit

from crossfade import Searcher
from crossfade.errors import BadInput
from crossfade.integrations.llama_index import CrossfadeEmbedding, CrossfadeRetriever


class Model(BaseEmbedding):
    """One of the two models, as LlamaIndex has it."""

    embed: object

    def _get_text_embedding(self, text):
        return self.embed([text])[0].tolist()

    def _get_query_embedding(self, query):
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


@pytest.fixture
def old(world):
    return Model(embed=world.models.old, model_name="coarse")


@pytest.fixture
def new(world):
    return Model(embed=world.models.new, model_name="fine")


def test_at_every_stage_the_applications_own_column_is_asked_right(world, migration, old, new):
    embedding = CrossfadeEmbedding(new, world.folder, old=old, store=world.app.address, refresh=0)
    assert embedding.model_name == "fine"
    for at, stage in enumerate(stages(world, migration)):
        text = texts_of(1, seed=100 + at)[0]
        query = embedding.get_query_embedding(text)
        vector = world.models.new([text])[0]
        expected = unit(vector) if stage == "finished" else world.upgrade.query_for_old(vector)
        assert np.allclose(query, expected, atol=1e-6), stage
        assert are_nearest(asked(world, query), expected, world.app.old()), stage
        assert asyncio.run(embedding.aget_query_embedding(text)) == query


def test_nodes_that_come_are_written_as_the_column_is(world, migration, old, new):
    embedding = CrossfadeEmbedding(new, world.upgrade, old=old, store=world.app.address, refresh=0)
    texts = texts_of(3, seed=12)
    for stage in stages(world, migration):
        expected = unit(world.models.new(texts)) if stage == "finished" else world.models.old(texts)
        found = embedding.get_text_embedding_batch(texts)
        assert np.allclose(found, expected, atol=1e-5), stage
        assert np.allclose(embedding.get_text_embedding(texts[0]), expected[0], atol=1e-5)
        assert asyncio.run(embedding.aget_text_embedding_batch(texts)) == found


def test_without_the_old_model_nodes_are_refused_until_the_end(world, migration, new):
    embedding = CrossfadeEmbedding(new, world.upgrade, store=world.app.address, refresh=0)
    for stage in stages(world, migration):
        if stage == "finished":
            assert len(embedding.get_text_embedding("abc")) == 16
            continue
        with pytest.raises(BadInput, match=r"written with the old model until .* → pass old="):
            embedding.get_text_embedding("abc")


def test_an_index_of_llama_index_goes_on_with_its_old_vectors(world, old, new):
    texts = list(world.texts.values())
    nodes = [TextNode(text=text, id_=str(n)) for n, text in enumerate(texts)]
    index = VectorStoreIndex(nodes, embed_model=old)
    embedding = CrossfadeEmbedding(new, world.upgrade, old=old)
    retriever = index.as_retriever(similarity_top_k=5, embed_model=embedding)
    gallery = dict(enumerate(world.models.old(texts)))
    for text in texts_of(10, seed=4):
        query = world.upgrade.query_for_old(world.models.new([text])[0])
        found = [int(one.node.id_) for one in retriever.retrieve(text)]
        assert are_nearest(found, query, gallery)


@pytest.mark.parametrize("with_old", [True, False])
def test_the_retriever_asks_as_the_searcher_does(world, migration, old, new, with_old):
    searcher = Searcher(world.app.address, world.upgrade, refresh=0)
    retriever = CrossfadeRetriever(
        searcher, new, old=old if with_old else None, text="body", columns=["kind"], k=6
    )
    for at, stage in enumerate(stages(world, migration)):
        text = texts_of(1, seed=at)[0]
        sides = {"old": world.models.old([text])[0]} if with_old else {}
        hits = searcher.search(world.models.new([text])[0], 6, **sides)
        found = retriever.retrieve(text)
        assert [one.node.id_ for one in found] == [str(hit.id) for hit in hits], stage
        assert np.allclose([one.score for one in found], [hit.score for hit in hits])
        for one in found:
            assert one.node.text == world.texts[int(one.node.id_)]
            assert one.node.metadata == {"kind": ord(one.node.text[0])}
        assert [one.node.id_ for one in asyncio.run(retriever.aretrieve(text))] == [
            one.node.id_ for one in found
        ]
