"""What an endpoint is paid: counted before it is asked, and held below a cap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from crossfade.errors import BadInput, BudgetSpent

_CHARACTERS_PER_TOKEN = 4.0
# No tokenizer makes more tokens of a text than it has bytes, but for what it puts around each: the
# marks of its beginning and end, and perhaps an instruction.
_AROUND = 16
# Tokens that hold whole words are common, tokens that hold two are not; and some models read the
# beginning of a text alone.
_WORDS_PER_TOKEN, _BYTES_PER_TOKEN, _READ_AT_LEAST = 2.0, 32.0, 64.0


class Spend:
    """Counts tokens and money, and refuses a request that could cost more than is left.

    A request is reserved at the most that it can cost before it is sent, and settled when the
    answer says what it did cost. What is neither settled nor released counts as spent: the answer
    was lost, and the server may well have charged for it. So does what the endpoint does not
    count, or counts as fewer tokens than there can be.

    >>> spend = Spend(cost_per_million_tokens=100.0, max_spend=0.02)
    >>> texts = ["four", "characters"] * 3
    >>> spend.most_tokens(texts)
    138.0
    >>> spend.reserve(texts, "https://api.example.com")
    >>> round(spend.spent, 6)
    0.0138
    >>> spend.settle(texts, 120.0)
    120.0
    >>> round(spend.spent, 6)
    0.012
    >>> spend.reserve(texts, "https://api.example.com")
    Traceback (most recent call last):
    crossfade.errors.BudgetSpent: https://api.example.com: 0.012 of 0.02 is spent, and the next ...
    """

    def __init__(
        self, cost_per_million_tokens: float | None = None, max_spend: float | None = None
    ) -> None:
        if max_spend is not None and not cost_per_million_tokens:
            raise BadInput(
                "a spend cap needs the price of the model",
                step="give the cost of a million tokens too",
            )
        self._price = (cost_per_million_tokens or 0.0) / 1e6
        self._most = max_spend
        self._already = 0.0
        self._settled = self._reserved = 0.0
        self._keep: Callable[[float], object] | None = None
        # An endpoint that charges more than a token for a byte is believed: at once, and later.
        self._dearest = 1.0
        self._counted_characters = 0
        self._counted_tokens = 0.0

    @contextmanager
    def kept(self, already: float, keep: Callable[[float], object]) -> Iterator[None]:
        """Count what earlier runs have spent, and tell `keep` what is spent before it is.

        `keep` has to write it down where it outlives this process: after a kill its last number is
        what is `already` spent.
        """
        self._already += max(0.0, already - self.spent)
        self._keep = keep
        try:
            yield
        finally:
            self._keep = None

    @property
    def tokens(self) -> float:
        """Tokens of this run, with those that are reserved."""
        return self._settled + self._reserved

    @property
    def spent(self) -> float:
        """Money spent, that of earlier runs and what is reserved included."""
        return self._already + self.tokens * self._price

    def estimate(self, texts: Sequence[str]) -> float:
        """Tokens that these texts will likely be, for the pace: by all answers so far."""
        characters = sum(map(len, texts))
        if self._counted_tokens > 0 and self._counted_characters > 0:
            return characters * self._counted_tokens / self._counted_characters
        return characters / _CHARACTERS_PER_TOKEN

    def most_tokens(self, texts: Sequence[str]) -> float:
        """Tokens that these texts can be at most."""
        return self._dearest * sum(_bytes(text) + _AROUND for text in texts)

    def affordable(self, texts: Sequence[str]) -> int:
        """How many of the first texts may be sent as one request."""
        if self._most is None:
            return len(texts)
        tokens, left = 0.0, self._most - self.spent
        for count, text in enumerate(texts):
            tokens += self.most_tokens([text])
            if tokens * self._price > left:
                return count
        return len(texts)

    def allow(self, texts: Sequence[str], where: str) -> None:
        """Raise `BudgetSpent` if a request with these texts could pass the cap."""
        cost = self.most_tokens(texts) * self._price
        if self._most is not None and self.spent + cost > self._most:
            raise BudgetSpent(
                f"{self.spent:.4g} of {self._most:.4g} is spent, and the next request "
                f"could cost {cost:.4g}",
                where=where,
                step="raise the spend cap to go on",
            )

    def reserve(self, texts: Sequence[str], where: str) -> None:
        """A request with these texts is about to be sent; `BudgetSpent` if it may not be."""
        self._settled, self._reserved = self.tokens, 0.0
        self.allow(texts, where)
        self._reserved = self.most_tokens(texts)
        self._write_down()

    def release(self) -> None:
        """The request was never worked on, and cost nothing."""
        self._reserved = 0.0
        self._write_down()

    def settle(self, texts: Sequence[str], tokens: float | None) -> float | None:
        """The request was answered; `tokens` is what the endpoint says it took, if it says so.

        Gives the tokens back if they are believed.
        """
        if tokens is None or tokens < sum(map(_least, texts)):
            self._settled, tokens = self.tokens, None
        else:
            self._settled += tokens
            self._dearest = max(self._dearest, self._dearest * tokens / self._reserved)
            self._counted_characters += sum(map(len, texts))
            self._counted_tokens += tokens
        self._reserved = 0.0
        self._write_down()
        return tokens

    def _write_down(self) -> None:
        if self._keep is not None:
            self._keep(self.spent)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _least(text: str) -> float:
    """Tokens that a text is at least, whatever the model."""
    by_size = max(len(text.split()) / _WORDS_PER_TOKEN, _bytes(text) / _BYTES_PER_TOKEN)
    return max(1.0, min(by_size, _READ_AT_LEAST))
