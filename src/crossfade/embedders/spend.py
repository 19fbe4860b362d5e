"""What an endpoint is paid: counted before it is asked, and held below a cap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from crossfade.errors import BadInput, BudgetSpent

Purse = Callable[[float, float | None], float]
"""Of what several spend together, up to the second: what there is for a cost, perhaps less."""

_CHARACTERS_PER_TOKEN = 4.0
# No tokenizer makes more tokens of a text than it has bytes, but for what it puts around each: the
# marks of its beginning and end, and perhaps an instruction.
_AROUND = 16
# Tokens that hold whole words are common, tokens that hold two are not; and some models read the
# beginning of a text alone.
_WORDS_PER_TOKEN, _BYTES_PER_TOKEN, _READ_AT_LEAST = 2.0, 32.0, 64.0


@dataclass(eq=False)
class Reservation:
    """A request that may be under way, and the tokens that it counts as until it is settled."""

    texts: Sequence[str]
    most: float
    """If the model makes a token of every byte."""
    tokens: float


class Spend:
    """Counts tokens and money, and refuses a request that could cost more than is left.

    A request is reserved at the most that it can cost before it is sent, and settled when the
    answer says what it did cost; any number of them may be open. What is neither settled nor
    released counts as spent: the answer was lost, and the server may well have charged for it. So
    does what the endpoint does not count, or counts as fewer tokens than there can be.

    >>> spend = Spend(cost_per_million_tokens=100.0, max_spend=0.02)
    >>> texts = ["four", "characters"] * 3
    >>> spend.most_tokens(texts)
    138.0
    >>> reserved = spend.reserve(texts, "https://api.example.com")
    >>> round(spend.spent, 6)
    0.0138
    >>> spend.settle(reserved, 120.0)
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
        self._tokens = 0.0
        self._open: set[Reservation] = set()
        self._keep: Callable[[float], object] | None = None
        self._purse: Purse | None = None
        self._kept: float | None = None
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
        self._keep, self._kept = keep, already
        try:
            yield
        finally:
            self._keep = None

    @contextmanager
    def shared(self, purse: Purse) -> Iterator[Callable[[], float]]:
        """Spend what `purse` allows, which others spend from too; gives what was spent since.

        What the purse gives is written down as spent before it is: nothing more has to be kept.
        """
        before = self.spent
        self._purse = purse
        try:
            yield lambda: self.spent - before
        finally:
            self._purse = None

    @property
    def tokens(self) -> float:
        """Tokens of this run, with those that are reserved."""
        return self._tokens

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
        if self._most is None and self._purse is None:
            return len(texts)
        tokens, left = 0.0, self._left(texts)
        for count, text in enumerate(texts):
            tokens += self.most_tokens([text])
            if tokens * self._price > left:
                return count
        return len(texts)

    def allow(self, texts: Sequence[str], where: str) -> None:
        """Raise `BudgetSpent` if a request with these texts could pass the cap."""
        cost = self.most_tokens(texts) * self._price
        if cost > self._left(texts):
            spent = f"{self.spent:.4g} of " if self._purse is None else "by all workers nearly "
            raise BudgetSpent(
                f"{spent}{self._most:.4g} is spent, and the next request could cost {cost:.4g}",
                where=where,
                step="raise the spend cap to go on",
            )

    def _left(self, texts: Sequence[str]) -> float:
        """Money that there is for these texts."""
        if self._purse is not None and self._price:
            return self._purse(self.most_tokens(texts) * self._price, self._most)
        return math.inf if self._most is None else self._most - self.spent

    def reserve(self, texts: Sequence[str], where: str) -> Reservation:
        """A request with these texts is to be sent; `BudgetSpent` if it may not be.

        Not before `write_down` has returned: what is not written down is forgotten by a kill.
        """
        self.allow(texts, where)
        tokens = self.most_tokens(texts)
        made = Reservation(texts, tokens / self._dearest, tokens)
        self._open.add(made)
        self._tokens += tokens
        return made

    def release(self, reserved: Reservation) -> None:
        """The request was never worked on, and cost nothing."""
        self._open.discard(reserved)
        self._tokens -= reserved.tokens

    def lose(self, reserved: Reservation) -> None:
        """The answer was lost: the request counts as the most it can have cost."""
        self._open.discard(reserved)

    def settle(self, reserved: Reservation, tokens: float | None) -> float | None:
        """The request was answered; `tokens` is what the endpoint says it took, if it says so.

        Gives the tokens back if they are believed.
        """
        self._open.discard(reserved)
        if tokens is None or tokens < sum(map(_least, reserved.texts)):
            return None
        self._tokens += tokens - reserved.tokens
        self._raise_price(tokens / reserved.most if reserved.most else 0.0)
        self._counted_characters += sum(map(len, reserved.texts))
        self._counted_tokens += tokens
        return tokens

    def write_down(self) -> None:
        """Have it kept what is spent, unless that is known already."""
        if self._keep is not None and self._kept != self.spent:
            self._kept = None
            self._keep(self.spent)
            self._kept = self.spent

    def _raise_price(self, tokens_per_byte: float) -> None:
        """What was reserved at a lower price, and is under way, may cost as much as this one."""
        if tokens_per_byte <= self._dearest:
            return
        self._dearest = tokens_per_byte
        for one in self._open:
            self._tokens += one.most * self._dearest - one.tokens
            one.tokens = one.most * self._dearest


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _least(text: str) -> float:
    """Tokens that a text is at least, whatever the model."""
    by_size = max(len(text.split()) / _WORDS_PER_TOKEN, _bytes(text) / _BYTES_PER_TOKEN)
    return max(1.0, min(by_size, _READ_AT_LEAST))
