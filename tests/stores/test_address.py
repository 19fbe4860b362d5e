"""Addresses of stores: any password works, none is shown, and a name can be typed again."""

from __future__ import annotations

import traceback
from urllib.parse import quote, unquote

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from crossfade.errors import BadInput, StoreError
from crossfade.stores import open_store
from crossfade.stores.address import Url, safe_name
from crossfade.stores.postgres.connection import Pool
from crossfade.stores.postgres.store import PostgresStore
from crossfade.stores.registry import address_of

PASSWORDS = [
    "hunter2",
    "p@ss",
    "hun/ter",
    "hun#ter",
    "hun?ter",
    "hun[ter",
    "p%40ss%2Fw:rd[",
    "p@s/s#w?r:d[&=]+ %zz%",
    "?host=a",
    "12/34",
    "é\N{SLIGHTLY SMILING FACE}",
    "//:@@/#",
]


@pytest.mark.parametrize("password", PASSWORDS)
def test_libpq_gets_the_password_and_nobody_else(password):
    found = address_of(f"postgresql://app:{password}@db:5432/shop?sslmode=disable#items")
    assert (found.kind, found.table) == ("pgvector", "items")
    assert found.name == "postgresql://app@db:5432/shop?sslmode=disable#items"
    assert conninfo_to_dict(found.at) == {
        "user": "app",
        "password": unquote(password),
        "host": "db",
        "port": "5432",
        "dbname": "shop",
        "sslmode": "disable",
    }


# libpq itself refuses a NUL, and half a character has no bytes to send.
passwords = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1)


@given(passwords)
def test_a_name_is_the_same_whatever_the_password_is(password):
    quoted = quote(password, safe="")
    for spelling in {password, quoted}:
        # As it stands in the query it would be more than one setting.
        found = address_of(f"postgresql://app:{spelling}@db/shop#items")
        assert found.name == "postgresql://app@db/shop#items"
    found = address_of(f"postgresql://app@db/shop?password={quoted}&port=1#items")
    assert found.name == "postgresql://app@db/shop?port=1#items"


@pytest.mark.parametrize(
    "name",
    [
        "postgresql://db/shop#items",
        "postgresql://app@db:5432/shop#schema.items",
        "postgresql:///shop?host=/run/pg#items",
        "postgresql://postgres@/shop?host=/run/pg&port=5433#items",
        "postgresql://db:5432/shop?user=me%40corp#items",
        "postgresql://db/shop?options=-csearch_path%3Da#items",
        "postgresql://one:1,two:2/shop?target_session_attrs=any#items",
        "postgresql://[::1]:5432/shop#items",
        "postgresql://db/shop#it%40ems",
        "postgres://db/sh%40p#items",
        "qdrant://localhost:6333#items",
        "qdrant+https://qdrant.example.com:443/path#items",
        "qdrant:some/@folder#items",
    ],
)
def test_an_address_without_a_password_is_its_own_name(name):
    assert address_of(name).name == name


def test_a_user_with_an_at_in_it_is_used():
    found = address_of("postgresql://db:5432/shop?user=me@corp&password=a@b#items")
    assert conninfo_to_dict(found.at) == {
        "host": "db",
        "port": "5432",
        "dbname": "shop",
        "user": "me@corp",
        "password": "a@b",
    }


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql:///db?host=/p&password=xyzzy#t", "postgresql:///db?host=/p#t"),
        ("postgresql:///db?password=xy@zzy&host=/p#t", "postgresql:///db?host=/p#t"),
        ("postgresql:///db?password=xy#zzy&host=/p#t", "postgresql:///db?host=/p#t"),
        ("postgresql://h:1/db?password=xy@zzy#t", "postgresql://h:1/db#t"),
        ("postgresql://h:1/db?user=me@corp&port=2#t", "postgresql://h:1/db?port=2#t"),
        ("postgresql://app:?user=xyzzy@h/db#t", "postgresql://app:#t"),
        ("postgresql://h/db?sslpassword=xyzzy&xyzzy=1&passw%6Frd=xyzzy#t", "postgresql://h/db#t"),
        ("postgresql://app:xyzzy@h/db?application_name=xyzzy", "postgresql://app@h/db"),
        ("postgresql://app:xyzzy/host", "postgresql://…"),
        ("postgresql://app:xy[zzy/host#t", "postgresql://…#t"),
        ("postgresql://[xyzzy/host#t", "postgresql://…#t"),
        ("qdrant://app:xy/zzy@host:6333#c", "qdrant://app@host:6333#c"),
    ],
)
def test_what_could_be_a_secret_is_left_out(url, name):
    assert safe_name(url) == name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("postgresql:app:xyzzy@h/db#t", "the address has no //"),
        ("postgresql:/app:xyzzy@h/db#t", "the address has no //"),
        ("postgresql://app:xyzzy@h/db", "postgresql://app@h/db: names no table"),
        ("postgresql://app:xyzzy@[h/db#t", "postgresql://app@…#t: the host cannot be read"),
        ("postgresql://app:xyzzy/h#t", "postgresql://…#t: the host cannot be read"),
        ("postgresql://app:xyzzy@h:port/db#t", "the host cannot be read"),
        ("qdrant://[#t", "qdrant://…#t: the host cannot be read"),
        ("qdrant:app:xyzzy@host#t", "qdrant:…@host: is no folder of a local Qdrant"),
        ("qdrant://app:xy/zzy@host#t", "holds more than a host → put the key into QDRANT_API_KEY"),
        ("mysql://app:xyzzy@h/db#t", "a store of kind 'mysql' is not known"),
        ("https:/app:xyzzy@h/db", "https:/…@h/db: no such store"),
        ("postgresql://app:xyz\nzy@h/db#t", "holds a control character"),
        ("some\0where.lance", "holds a control character"),
        ("some\nwhere", "holds a control character"),
    ],
)
def test_what_cannot_be_used_is_refused_without_showing_a_password(text, says):
    with pytest.raises(BadInput) as raised:
        open_store(text)
    assert says in str(raised.value)
    told = "".join(traceback.format_exception(raised.value))
    assert "xyz" not in told.replace("test_", "")


@pytest.mark.parametrize("password", PASSWORDS)
def test_an_error_of_the_database_shows_no_password(password):
    url = address_of(f"postgresql://app:{password}@127.0.0.1:1/shop#items").at
    with pytest.raises(StoreError) as raised:
        PostgresStore(url, "items", patience=0.1)
    told = "".join(traceback.format_exception(raised.value))
    assert "postgresql://app@127.0.0.1:1/shop#items" in told
    for spelling in (password, unquote(password), quote(password), quote(password, safe="")):
        assert f":{spelling}@" not in told
        if len(spelling) > 4:
            assert spelling not in told


@pytest.mark.parametrize("spell", [str, lambda one: quote(one, safe=""), lambda one: f"x{one}y"])
@pytest.mark.parametrize("password", PASSWORDS)
def test_whatever_libpq_says_of_a_password_is_not_repeated(password, spell):
    text = f"postgresql://app:{password}@h/db#items"
    pool = Pool(address_of(text).at, "the store", 0.1)
    said = pool.translate(psycopg.OperationalError(f'invalid token: "{spell(password)}" in URI'))
    assert "invalid token:" in str(said) or len(password) < 3
    assert Url.of(text).secrets
    for secret in Url.of(text).secrets:
        assert secret not in str(said)
