"""The demo in plain words. Every sentence is chosen by the numbers it quotes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossfade.demo.digits.spaces import Spaces

Scores = Mapping[str, Mapping[str, float]]

BEFORE = ("old/old", "new/old", "new/new")
AFTER = ("F(old)/old", "F(old)/F(old)", "B(new)/F(old)", "B(new)/old", "B(new)/B(new)")
MEANING = {
    "old/old": "the search as it runs today",
    "new/old": "new model on the old index",
    "new/new": "all re-embedded: the goal",
    "F(old)/old": "lifted queries, old index",
    "F(old)/F(old)": "the old model alone, lifted",
    "B(new)/F(old)": "new queries, lifted index",
    "B(new)/old": "new queries, index untouched",
    "B(new)/B(new)": "all re-embedded, through B",
}


def opening(train: int, test: int, guess: float) -> str:
    """Who is who, and how it is measured."""
    return f"""\
Imagine a search engine for handwritten digits: show it one, it finds the same.

  old model   a small network that was trained on the digits 0–4 only;
              every stored image (the gallery) was embedded with it
  new model   the same network trained on all ten digits
  B           maps new vectors to where the old ones are (the shared space)
  F           lifts stored old vectors to the quality of the new ones

B and F were learned from {train} images embedded by both models. They are tested on
{test} images that neither the models nor the maps have seen: each one in turn is the
query, the others are the gallery. In percent:

  cmc@1       how often the nearest image shows the same digit (guessing: {guess:.1f})
  mAP         how far ahead of all others the images of the same digit come
"""


def explanation(cases: Scores, test: int, guess: float) -> str:
    """What the table says, step by step of an upgrade."""
    top1 = {case: scores["cmc@1"] for case, scores in cases.items()}
    lines = [
        f"Today the search is right {top1['old/old']:.1f} % of the time; a gallery embedded again "
        f"with the new model would bring {top1['new/new']:.1f} %.",
        _without(top1, test, guess),
        _with_backward(cases, test),
        _lifted(top1),
        _finished(cases),
    ]
    return "\n".join(f"{i}. {line}" for i, line in enumerate(lines, 1))


def picture(spaces: Spaces) -> str:
    """What to see in the picture."""
    affine, near = spaces.mapped["affine"], spaces.mapped["near-orthogonal"]
    least, most = affine.stretch
    verb = "squashes" if most < 1 else "distorts"
    return (
        f"the same in two dimensions. On its way to the target (old), an affine B {verb} the "
        f"source (new): lengths change by factors from {least:.2f} to {most:.2f}. An orthogonal B "
        f"only turns or mirrors it. A near-orthogonal B ({near.stretch[0]:.2f} to "
        f"{near.stretch[1]:.2f}) gives up as much of the shape as λ allows to come nearer."
    )


def margin(first: float, second: float, rows: int) -> float:
    """Points by which two percentages over `rows` queries differ by chance alone, 19 times in 20.

    >>> round(margin(80.0, 80.0, 540), 1)
    4.8
    """
    variance = sum(p / 100 * (1 - p / 100) for p in (first, second)) / rows
    return 196.0 * math.sqrt(variance)


def _without(top1: Mapping[str, float], test: int, guess: float) -> str:
    found = top1["new/old"]
    text = f"Without Crossfade, new queries on the old index find the right digit {found:.1f} %"
    if found <= guess + margin(found, guess, test):
        return f"{text} of the time: no better than guessing. The models speak two languages."
    if found < top1["old/old"] - margin(found, top1["old/old"], test):
        return (
            f"{text} of the time, far below today's {top1['old/old']:.1f} %: the models speak "
            "two languages."
        )
    return f"{text} of the time: here the two models happen to understand each other."


def _with_backward(cases: Scores, test: int) -> str:
    found, today = cases["B(new)/old"]["cmc@1"], cases["old/old"]["cmc@1"]
    text = (
        f"With B on every query, and not one stored vector touched, they find {found:.1f} %, "
        f"against {today:.1f} % today (mAP {cases['B(new)/old']['mAP']:.1f} against "
        f"{cases['old/old']['mAP']:.1f})"
    )
    chance = (
        f", a gap that may be chance with {test} queries"
        if abs(found - today) <= margin(found, today, test)
        else ""
    )
    if found > today:
        return f"{text}: above the old model from the first day{chance}."
    if found == today:
        return f"{text}: level with the old model on cmc@1."
    return f"{text}: not above the old model{chance}. Lift the gallery with F before you switch."


def _lifted(top1: Mapping[str, float]) -> str:
    found, today, goal = top1["B(new)/F(old)"], top1["old/old"], top1["new/new"]
    text = (
        f"Once F has lifted the stored vectors (one small map, no image is embedded again), new "
        f"queries find {found:.1f} %"
    )
    if found <= today:
        return f"{text}: not above today's {today:.1f} %, so here F does not pay."
    if found >= goal:
        return f"{text}: all that re-embedding everything would bring."
    if goal <= today:
        return f"{text}."
    share = (found - today) / (goal - today)
    return f"{text}: {100 * share:.0f} % of the way from today to the goal."


def _finished(cases: Scores) -> str:
    through, goal = cases["B(new)/B(new)"], cases["new/new"]
    text = "Re-embedding the gallery can then go on at leisure."
    if all(abs(through[m] - goal[m]) < 1e-9 for m in goal):
        return f"{text} B only turns the new space: B(new)/B(new) equals new/new, nothing is lost."
    return (
        f"{text} At its end stands {through['cmc@1']:.1f} %, where the new model alone has "
        f"{goal['cmc@1']:.1f} %."
    )
