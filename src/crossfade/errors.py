"""Every error a user can meet, in one tree.

    CrossfadeError
    ├── BadInput            exit 2   a file, an array or an option is wrong
    │   ├── BadRow          exit 2   one row of an array cannot be used
    │   ├── MissingExtra    exit 2   an optional dependency is not installed
    │   └── BadUpgrade      exit 2   an upgrade folder is incomplete or was changed
    ├── NotCompatible       exit 1   a verdict failed
    ├── NotProven           exit 1   a step that cannot be undone lacks its proof
    ├── StoreError          exit 3   a vector store or a service failed
    │   ├── StoreBusy       exit 3   another process is migrating it
    │   └── WorkerLost      exit 3   this worker was away too long, and its part is another's
    ├── EmbedderError       exit 3   where new vectors come from gave none, or bad ones
    │   └── MissingVectors  exit 3   a file of vectors lacks some ids
    └── BudgetSpent         exit 0   the spend cap is reached: a clean stop, not a failure

A message reads `where: cause → next step`, so that the reader of a log knows what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

from crossfade.redaction import without_password


class CrossfadeError(Exception):
    """Base of all errors raised on purpose.

    >>> str(CrossfadeError("row 17 of 'new' has a NaN", where="pairs.npz", step="re-embed it"))
    "pairs.npz: row 17 of 'new' has a NaN → re-embed it"
    """

    exit_code = 1

    def __init__(self, cause: str, *, where: object = None, step: str | None = None) -> None:
        self.cause = cause
        self.where = None if where is None else without_password(str(where))
        self.step = step
        message = cause if self.where is None else f"{self.where}: {cause}"
        super().__init__(message if step is None else f"{message} → {step}")


class BadInput(CrossfadeError):
    """A file, an array or an option that cannot be used."""

    exit_code = 2


class BadRow(BadInput):
    """One row of an array that cannot be used; rows count from 0.

    >>> str(BadRow(17, "has a NaN", where="pairs.npz", side="new", step="re-embed it"))
    "pairs.npz: row 17 of 'new' has a NaN → re-embed it"

    Code that sees only a piece of a file raises with the row of the piece; its caller, who knows
    where the piece came from, raises again with the row of the file:

    >>> str(BadRow(17, "has a NaN").moved(1000, where="old.npy"))
    'old.npy: row 1017 has a NaN'
    """

    def __init__(
        self,
        row: int,
        problem: str,
        *,
        where: object = None,
        side: str | None = None,
        step: str | None = None,
    ) -> None:
        which = f"row {row}" if side is None else f"row {row} of '{side}'"
        super().__init__(f"{which} {problem}", where=where, step=step)
        self.row = row
        self.cause_of_row = problem
        self.side = side

    def moved(
        self,
        offset: int,
        *,
        where: object = None,
        side: str | None = None,
        step: str | None = None,
    ) -> BadRow:
        """The same error, `offset` rows further on; what is not named is kept."""
        return BadRow(
            self.row + offset,
            self.cause_of_row,
            where=self.where if where is None else where,
            side=self.side if side is None else side,
            step=self.step if step is None else step,
        )


class MissingExtra(BadInput):
    """An optional dependency that is not installed.

    >>> str(MissingExtra("torch", extra="train", need="the gradient solver"))
    "the gradient solver needs torch, which is not installed → pip install 'crossfade[train]'"
    """

    def __init__(self, package: str, *, extra: str, need: str) -> None:
        super().__init__(
            f"{need} needs {package}, which is not installed",
            step=f"pip install 'crossfade[{extra}]'",
        )
        self.package = package
        self.extra = extra


class BadUpgrade(BadInput):
    """An upgrade folder that is incomplete, was changed, or belongs to another version."""


class NotCompatible(CrossfadeError):
    """A required case does not meet the Empirical Compatibility Criterion."""

    exit_code = 1


class NotProven(CrossfadeError):
    """A step that cannot be undone was asked for, and not all is as it should be."""

    exit_code = 1


class StoreError(CrossfadeError):
    """A vector store or a service did not do what was asked."""

    exit_code = 3


class StoreBusy(StoreError):
    """Another process holds the store for a step of a migration."""


class WorkerLost(StoreError):
    """One of several workers was not heard of for so long that another has taken its part."""


class EmbedderError(CrossfadeError):
    """An embedder failed, or answered with vectors that cannot be used."""

    exit_code = 3


class MissingVectors(EmbedderError):
    """Ids for which an embedder has no vector; `ids` holds all of them, the message the first few.

    >>> str(MissingVectors(["a", "b"], where="new.parquet", step="add them"))
    "new.parquet: has no vector for 2 ids: 'a', 'b' → add them"
    """

    def __init__(
        self, ids: Sequence[str | int], *, where: object = None, step: str | None = None
    ) -> None:
        self.ids = tuple(ids)
        shown = ", ".join(shortened(one) for one in self.ids[:5])
        more = f" and {len(self.ids) - 5} more" if len(self.ids) > 5 else ""
        count = "1 id" if len(self.ids) == 1 else f"{len(self.ids)} ids"
        super().__init__(f"has no vector for {count}: {shown}{more}", where=where, step=step)


class BudgetSpent(CrossfadeError):
    """The next request would cost more than is left; everything before it stands."""

    exit_code = 0


def shortened(value: object, most: int = 80) -> str:
    """A value as an error shows it, however long it is.

    >>> shortened("a" * 100, 10)
    "'aaaaaa..."
    """
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."
