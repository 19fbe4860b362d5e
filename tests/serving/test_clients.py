"""Others' clients, unchanged but for a base URL, get the vectors that the model's name says."""

from __future__ import annotations

import base64
import re

import cohere
import numpy as np
import openai
import pytest
import tiktoken
import voyageai
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai import OpenAIEmbedding
from tests.embedders.server import fails
from tests.serving.conftest import CLIENT, QUERIES, TEXTS
from tests.serving.models import NEW, OLD, D, N, embed_new, embed_old

from crossfade import Upgrade
from crossfade.journal.space import SharedColumn


def close(found, wanted) -> bool:
    return np.allclose(np.asarray(found, np.float32), wanted, rtol=0, atol=2e-6)


@pytest.fixture
def client(gateway):
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as made:
        yield made


def vectors(answer) -> np.ndarray:
    return np.array([item.embedding for item in answer.data], np.float32)


def test_openai_gets_the_new_models_vectors_as_they_are(client):
    answer = client.embeddings.create(model=NEW, input=QUERIES)
    assert np.array_equal(vectors(answer), embed_new(QUERIES))
    assert answer.model == NEW
    assert answer.usage.total_tokens == sum(len(text.split()) for text in QUERIES)


def test_openai_gets_queries_for_the_untouched_old_index(client, upgrade):
    answer = client.embeddings.create(model=f"{NEW}@old", input=QUERIES)
    assert vectors(answer).shape == (3, D)
    assert close(vectors(answer), upgrade.query_for_old(embed_new(QUERIES)))
    assert close(vectors(answer), upgrade.backward(embed_new(QUERIES))[:, :D])


def test_openai_gets_old_vectors_lifted_among_plain_new_ones(client, upgrade):
    answer = client.embeddings.create(model=f"{OLD}@new", input=QUERIES)
    lifted = upgrade.forward(embed_old(QUERIES)) @ upgrade.backward_.map.weight
    assert close(vectors(answer), lifted)
    # B(new) and F(old) are as near to each other as these are.
    nearness = np.vecdot(upgrade.backward(embed_new(QUERIES)), upgrade.forward(embed_old(QUERIES)))
    assert close(np.vecdot(vectors(answer), embed_new(QUERIES)), nearness)
    assert nearness.min() > 0.7


def test_openai_gets_the_old_models_own_vectors_too(client):
    answer = client.embeddings.create(model=OLD, input=QUERIES[0])
    assert np.array_equal(vectors(answer), embed_old(QUERIES[:1]))


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_both_encodings_say_the_same(http, upgrade, encoding):
    asked = {"model": f"{NEW}@old", "input": QUERIES, "encoding_format": encoding}
    answer = http.post("/v1/embeddings", json=asked).json()
    rows = [item["embedding"] for item in answer["data"]]
    if encoding == "base64":
        rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows]
    assert close(rows, upgrade.query_for_old(embed_new(QUERIES)))
    assert [item["index"] for item in answer["data"]] == [0, 1, 2]


def test_the_upstream_is_asked_for_base64_whatever_the_client_wants(http, new_upstream):
    http.post("/v1/embeddings", json={"model": NEW, "input": "a", "encoding_format": "float"})
    assert new_upstream.requests[-1]["encoding_format"] == "base64"


def test_an_upstream_that_knows_no_base64_is_asked_for_it_once(http, new_upstream):
    new_upstream.plans = [fails(400, "encoding_format: unknown")]
    for _ in range(2):
        answer = http.post("/v1/embeddings", json={"model": NEW, "input": ["a"]})
        assert close([answer.json()["data"][0]["embedding"]], embed_new(["a"]))
    forms = [asked["encoding_format"] for asked in new_upstream.requests]
    assert forms == ["base64", "float", "float"]


def test_openai_may_ask_for_fewer_dimensions_of_a_model_and_not_of_an_index(client, new_upstream):
    # As OpenAI's own models do, which cut in base64 too.
    new_upstream.plans = [fails(400, "encoding_format: unknown")]
    answer = client.embeddings.create(model=NEW, input=QUERIES, dimensions=64)
    assert np.array_equal(vectors(answer), embed_new(QUERIES)[:, :64])
    with pytest.raises(openai.BadRequestError, match=f"has {D} dimensions"):
        client.embeddings.create(model=f"{NEW}@old", input=QUERIES, dimensions=64)
    assert vectors(client.embeddings.create(model=f"{NEW}@old", input="a", dimensions=D)).shape == (
        1,
        D,
    )


def test_openai_lists_the_models(client):
    assert [model.id for model in client.models.list()] == [NEW, f"{NEW}@old", OLD, f"{OLD}@new"]
    assert client.models.retrieve(f"{NEW}@old").id == f"{NEW}@old"


def test_openai_reads_what_is_wrong(client):
    with pytest.raises(openai.NotFoundError, match="name one of large, large@old") as found:
        client.embeddings.create(model="huge", input="a")
    assert found.value.code == "model_not_found"
    assert found.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="2049 inputs, and 2048 are allowed"):
        client.embeddings.create(model=NEW, input=["a"] * 2049)
    assert len(client.embeddings.create(model=f"{NEW}@old", input=["a"] * 2048).data) == 2048


def test_langchain_sends_texts_when_told_to(gateway, upgrade):
    made = OpenAIEmbeddings(
        model=f"{NEW}@old",
        base_url=f"{gateway.url}/v1",
        api_key="any",
        check_embedding_ctx_length=False,
    )
    wanted = upgrade.query_for_old(embed_new(QUERIES))
    assert close(made.embed_documents(QUERIES), wanted)
    assert close(made.embed_query(QUERIES[0]), wanted[0])


@pytest.fixture
def bytes_as_tokens(monkeypatch):
    """A real encoding of tiktoken that needs no download: a token for each byte."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    made = tiktoken.Encoding(
        "cl100k_base", pat_str=r"(?s).", mergeable_ranks=ranks, special_tokens={}
    )
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "cl100k_base", made)


def test_langchains_token_arrays_are_passed_on_to_an_upstream_that_takes_them(
    gateway, upgrade, new_upstream, bytes_as_tokens
):
    made = OpenAIEmbeddings(model=f"{NEW}@old", base_url=f"{gateway.url}/v1", api_key="any")
    assert close(made.embed_documents(QUERIES), upgrade.query_for_old(embed_new(QUERIES)))
    assert new_upstream.requests[-1]["input"][0] == list(QUERIES[0].encode())


def test_langchains_token_arrays_are_refused_by_name_where_the_upstream_takes_none(
    gateway, new_upstream, bytes_as_tokens
):
    new_upstream.plans = [fails(422, "input should be a valid string")] * 2
    made = OpenAIEmbeddings(
        model=f"{NEW}@old", base_url=f"{gateway.url}/v1", api_key="any", max_retries=0
    )
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        made.embed_query("a")


def test_token_arrays_can_be_refused_before_a_model_misreads_them(serve, new_upstream):
    asked = {"model": NEW, "input": [[1, 2, 3]]}
    answer = CLIENT.post(f"{serve(take_tokens=False).url}/v1/embeddings", json=asked)
    assert answer.status_code == 400
    assert "check_embedding_ctx_length=False" in answer.json()["error"]["message"]
    assert new_upstream.requests == []


def test_llama_index_gets_queries_for_the_old_index(gateway, upgrade):
    made = OpenAIEmbedding(
        model_name=f"{NEW}@old", api_base=f"{gateway.url}/v1", api_key="any", max_retries=1
    )
    wanted = upgrade.query_for_old(embed_new(QUERIES))
    assert close(made.get_text_embedding_batch(QUERIES), wanted)
    assert close(made.get_query_embedding(QUERIES[1]), wanted[1])


def test_cohere_gets_queries_for_the_old_index(gateway, upgrade):
    with cohere.ClientV2("any", base_url=gateway.url) as made:
        answer = made.embed(
            model=f"{NEW}@old",
            input_type="search_query",
            texts=QUERIES,
            embedding_types=["float"],
        )
        assert close(answer.embeddings.float_, upgrade.query_for_old(embed_new(QUERIES)))
        assert answer.texts == QUERIES
        with pytest.raises(cohere.BadRequestError) as found:
            made.embed(
                model=NEW, input_type="search_query", texts=QUERIES, embedding_types=["int8"]
            )
    assert "float and base64" in found.value.body["message"]


def test_voyage_gets_queries_for_the_old_index(gateway, upgrade):
    made = voyageai.Client(api_key="any", base_url=f"{gateway.url}/v1")
    answer = made.embed(QUERIES, model=f"{NEW}@old")
    assert close(answer.embeddings, upgrade.query_for_old(embed_new(QUERIES)))
    assert answer.total_tokens == sum(len(text.split()) for text in QUERIES)
    with pytest.raises(voyageai.error.InvalidRequestError, match="'output_dtype' is float"):
        made.embed(QUERIES, model=NEW, output_dtype="int8")


def test_voyages_input_type_reaches_the_upstream_and_its_defaults_do_not(gateway, new_upstream):
    made = voyageai.Client(api_key="any", base_url=f"{gateway.url}/v1")
    made.embed(QUERIES, model=NEW, input_type="query")
    asked = new_upstream.requests[-1]
    assert asked["input_type"] == "query"
    assert "truncation" not in asked


def test_tei_gets_a_bare_list_of_unit_vectors(http, upgrade):
    wanted = upgrade.query_for_old(embed_new(QUERIES))
    found = np.array(http.post("/embed", json={"inputs": QUERIES}).json(), np.float32)
    assert close(found, wanted / np.linalg.norm(wanted, axis=1, keepdims=True))
    plain = http.post("/embed", json={"inputs": QUERIES[0], "normalize": False}).json()
    assert close(plain, wanted[:1])
    refused = http.post("/embed", json={"inputs": [1.5]})
    assert refused.status_code == 400
    assert refused.json()["error_type"] == "Validation"


def test_without_the_old_model_there_are_its_names_no_more(serve):
    url = serve().url
    names = [model["id"] for model in CLIENT.get(f"{url}/v1/models").json()["data"]]
    assert names == [NEW, f"{NEW}@old"]
    asked = {"model": OLD, "input": "a"}
    assert CLIENT.post(f"{url}/v1/embeddings", json=asked).status_code == 404


def test_a_near_orthogonal_upgrade_lifts_into_the_shared_space(
    tmp_path, serve, old_upstream, upgrade
):
    some = TEXTS[:900]
    made = Upgrade(solver="closed_form", backward_map="affine")
    made.fit(embed_old(some), embed_new(some)).save(tmp_path / "upgrade")
    url = serve(upgrade=tmp_path / "upgrade", upstream_old=old_upstream.url, model_old=OLD).url
    asked = {"model": f"{OLD}@new", "input": QUERIES}
    found = CLIENT.post(f"{url}/v1/embeddings", json=asked).json()["data"]
    assert close([item["embedding"] for item in found], made.forward(embed_old(QUERIES)))


def test_keys_go_to_the_upstream_and_to_nobody_else(serve, new_upstream, monkeypatch):
    monkeypatch.setenv("NEW_KEY", "sk-of-the-upstream")
    new_upstream.key = "sk-of-the-upstream"
    url = serve(key_env="NEW_KEY").url
    answer = CLIENT.post(
        f"{url}/v1/embeddings",
        json={"model": NEW, "input": "a"},
        headers={"Authorization": "Bearer sk-of-the-client"},
    )
    assert answer.status_code == 200
    assert new_upstream.headers[-1]["Authorization"] == "Bearer sk-of-the-upstream"
    assert "sk-of-the-client" not in str(new_upstream.headers)
    assert not re.search("sk-", answer.text + str(answer.headers))


def test_the_map_that_is_written_in_docs_is_the_one_that_answers(upgrade):
    column = SharedColumn.of(upgrade, "new")
    assert column.turn is not None
    assert column.turn.shape == (N, N)
