"""What an endpoint was paid, and the cap that stops it."""

from __future__ import annotations

from collections.abc import Sequence

from crossfade.errors import BadInput, BudgetSpent

_CHARACTERS_PER_TOKEN = 4.0


class Spend:
    """Counts tokens and money, and refuses a request that would cost more than is left.

    What a request will take is estimated from its characters: four to a token until the first
    answer says better, then by the tokens per character of all answers so far.

    >>> spend = Spend(cost_per_million_tokens=100.0, max_spend=0.02)
    >>> spend.estimate(["four", "characters"])
    3.5
    >>> spend.allow(150, "https://api.example.com")
    >>> spend.count(characters=600, tokens=150)
    >>> round(spend.spent, 6)
    0.015
    >>> spend.allow(150, "https://api.example.com")
    Traceback (most recent call last):
    crossfade.errors.BudgetSpent: https://api.example.com: 0.015 of 0.02 is spent, and the next ...
    """

    def __init__(
        self,
        cost_per_million_tokens: float | None = None,
        max_spend: float | None = None,
        *,
        already_spent: float = 0.0,
    ) -> None:
        if max_spend is not None and not cost_per_million_tokens:
            raise BadInput(
                "a spend cap needs the price of the model",
                step="give the cost of a million tokens too",
            )
        self._price = (cost_per_million_tokens or 0.0) / 1e6
        self._most = max_spend
        self._already = already_spent
        self.tokens = 0.0
        """Tokens of this run, as the endpoint counted them, or as estimated where it did not."""
        self._counted_characters = 0
        self._counted_tokens = 0.0

    @property
    def spent(self) -> float:
        """Money spent, that of earlier runs included."""
        return self._already + self.tokens * self._price

    def estimate(self, texts: Sequence[str]) -> float:
        """Tokens that a request with these texts will take."""
        return self.tokens_of(sum(map(len, texts)))

    def tokens_of(self, characters: int) -> float:
        """Tokens that so many characters will be."""
        if self._counted_tokens > 0 and self._counted_characters > 0:
            return characters * self._counted_tokens / self._counted_characters
        return characters / _CHARACTERS_PER_TOKEN

    def allow(self, tokens: float, where: str) -> None:
        """Raise `BudgetSpent` if a request of so many tokens would pass the cap."""
        cost = tokens * self._price
        if self._most is not None and self.spent + cost > self._most:
            raise BudgetSpent(
                f"{self.spent:.4g} of {self._most:.4g} is spent, and the next request "
                f"would cost about {cost:.4g}",
                where=where,
                step="raise the spend cap to go on",
            )

    def count(self, characters: int, tokens: float | None) -> None:
        """A request was answered; `tokens` is None where the endpoint did not say."""
        if tokens is None:
            self.tokens += self.tokens_of(characters)
            return
        self.tokens += tokens
        self._counted_characters += characters
        self._counted_tokens += tokens
