"""The demo on texts in plain words. Every sentence is chosen by the numbers it quotes."""

from __future__ import annotations

from collections.abc import Sequence

from crossfade.demo.texts.data import NEW_MODEL, OLD_MODEL
from crossfade.demo.texts.quality import METRICS, MRR, WAYS, Quality, Stage, Way
from crossfade.demo.texts.upgrade import BEFORE, LOOKUPS, PAIRED, TABLE, Story

HEADINGS: dict[Way, str] = {"old": "old", "new": "new", "both": "both"}
MISSING = "–"


def opening(story: Story) -> str:
    """Who is who, and how it is measured."""
    return f"""\
A LanceDB table of {story.rows:,} texts is moved to another embedding model while it is searched.

  old model   {OLD_MODEL}, 256 dimensions: it embedded every row
  new model   {NEW_MODEL}, 384 dimensions: it embeds {PAIRED} rows to learn from,
              then the table bit by bit
  lookup      a query that wants one text back; {story.planned_with} judge and plan the upgrade, \
{story.asked} others
              ask the table itself at every stage, three ways:
  old         the old model's query: today's search
  new         the new model's query alone, through the maps
  both        both models' queries, their scores joined

None of the texts that are looked up was learned from. In percent: mrr@10, how high up the
wanted text comes; recall@10, how often it is among the first ten."""


def cells(story: Story) -> list[tuple[str, list[str]]]:
    """Of each stage its name and a cell for each metric and way, in the order of the columns."""
    out = []
    for stage in story.stages:
        means = {way: found.means() for way, found in stage.quality.items()}
        row = [
            f"{means[way][metric]:.1f}" if way in means else MISSING
            for metric in METRICS
            for way in WAYS
        ]
        out.append((stage.name, row))
    return out


def explanation(story: Story) -> list[str]:
    """What the table says."""
    today = story.stages[0].quality["old"]
    stages = story.stages[1:]
    return [
        _alone(today, stages),
        _both(today, stages),
        _finished(today, stages),
        _meanwhile(story.answered, story.failures),
    ]


def _alone(today: Quality, stages: Sequence[Stage]) -> str:
    first = stages[0].quality["new"]
    gap, ends = first.against(today)
    text = f"New queries alone begin at {_mean(first)}, {_points(gap, ends)} today's {_mean(today)}"
    below = [i for i, stage in enumerate(stages) if _mean_value(stage, "new") < _value(today)]
    if not below:
        return f"{text}, and are at no stage below it."
    if below[-1] == len(stages) - 1:
        return f"{text}, and are still below it at the end."
    return f"{text}. They are no longer below it from “{stages[below[-1] + 1].name}” on."


def _both(today: Quality, stages: Sequence[Stage]) -> str:
    asked = [stage for stage in stages if stage.name != "finished"]
    lowest = min(asked, key=lambda stage: _mean_value(stage, "both"))
    found = lowest.quality["both"]
    gap, ends = found.against(today)
    text = (
        f"With both models on the query the lowest point on the way is “{lowest.name}”: "
        f"{_mean(found)}, {_points(gap, ends)} today's"
    )
    if ends[1] < 0:
        return f"{text}. That is a loss: on data like this, ask as today until more is filled."
    if gap < 0:
        return f"{text}: below it by no more than chance with these lookups."
    return f"{text}: at no stage below it."


def _finished(today: Quality, stages: Sequence[Stage]) -> str:
    last = stages[-1].quality["new"]
    gap, ends = last.against(today)
    return (
        f"At the end the new model is alone: {_mean(last)}, {_points(gap, ends)} today's. Old "
        "queries that still come are lifted, and find "
        f"{_mean(stages[-1].quality['old'])}."
    )


def _meanwhile(answered: int, failures: Sequence[str]) -> str:
    text = f"Somebody searched the table all the while: {answered:,} searches answered"
    if not failures:
        return f"{text}, none failed."
    return f"{text}, {len(failures):,} failed, the first with: {failures[0]}."


def _value(found: Quality) -> float:
    return found.means()[MRR]


def _mean(found: Quality) -> str:
    return f"{_value(found):.1f}"


def _mean_value(stage: Stage, way: Way) -> float:
    return _value(stage.quality[way])


def _points(gap: float, ends: tuple[float, float]) -> str:
    """
    >>> _points(-3.21, (-5.0, -1.5))
    '3.2 points [-5.0, -1.5] below'
    """
    word = "below" if gap < 0 else "above"
    return f"{abs(gap):.1f} points [{ends[0]:+.1f}, {ends[1]:+.1f}] {word}"


APPLICATION = f"""\
import numpy as np
from crossfade import Searcher, Upgrade

asked = np.load("{LOOKUPS}")
searcher = Searcher("{TABLE}", Upgrade.load("upgrade"))
for hit in searcher.search(asked["new"][0], old=asked["old"][0], columns=["text"]):
    print(hit.id, hit.values["text"])
"""
"""The one line an application changes, with what it needs around it."""


def again() -> str:
    """Where the commands can be run."""
    return (
        f"The commands can be run in this order in that folder: {BEFORE} is the table as it was; "
        f"{TABLE}, a copy of it, is where the demo did the same."
    )


def markdown(story: Story, picture: str) -> str:
    """The card of the folder."""
    columns = [f"{metric}, {HEADINGS[way]}" for metric in METRICS for way in WAYS]
    lines = ["# An upgrade while it is searched", "", "```", opening(story), "```", ""]
    lines += ["| stage | " + " | ".join(columns) + " |", "|---" + "|--:" * len(columns) + "|"]
    lines += [f"| {name} | " + " | ".join(row) + " |" for name, row in cells(story)]
    lines += ["", *(f"- {line}" for line in explanation(story)), "", f"![quality]({picture})", ""]
    lines += ["## Step by step", "", again(), ""]
    for number, step in enumerate(story.steps, 1):
        lines += [f"{number}. **{step.name}**: {step.found}", ""]
        if step.commands:
            lines += ["   ```sh", *(f"   {command}" for command in step.commands), "   ```", ""]
    lines += ["## In the application", "", "```python", APPLICATION + "```", ""]
    return "\n".join(lines)
