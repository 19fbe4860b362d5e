"""A query that wants an item back, from the item's own text: its first sentence, or half of it."""

from __future__ import annotations

import re

# Chinese and Japanese put no spaces between words: there a character counts as one.
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\s{_IDEOGRAPHS}]+")
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+|\n")
FEWEST = 3
"""Words of a query; a sentence of fewer, as `Dr.`, goes on to the end of the next."""


def lookup_of(text: str) -> str | None:
    """The query, or None where the text is too short to make one of.

    >>> lookup_of("Cats sleep all day. They hunt at night.")
    'Cats sleep all day.'
    >>> lookup_of("Dr. Smith sleeps. He wakes.")
    'Dr. Smith sleeps.'
    >>> lookup_of("one sentence is cut into two halves")
    'one sentence is'
    >>> lookup_of("too short") is None
    True
    """
    text = text.strip()
    words = [found.end() for found in _WORD.finditer(text)]
    for end in _END.finditer(text):
        query = text[: end.end()].strip()
        if len(words) > len(_WORD.findall(query)) >= FEWEST:
            return query
    return text[: words[len(words) // 2 - 1]] if len(words) >= 2 * FEWEST else None
