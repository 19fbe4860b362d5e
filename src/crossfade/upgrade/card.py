"""The card of an upgrade: the README.md in its folder, for the person who finds it in a year."""

from __future__ import annotations

from crossfade.cases import CASES
from crossfade.upgrade.artefact import Config


def render_card(config: Config) -> str:
    """Markdown that says what the upgrade maps, how it was learned and what it reached."""
    old, new = config.old, config.new
    lines = [
        f"# Upgrade {old.model or 'old'} → {new.model or 'new'}",
        "",
        f"Two maps into one shared space, learned by crossfade {config.crossfade_version}.",
        "",
        "| | reads | writes | kind |",
        "|---|---|---|---|",
        f"| backward map B | new, {new.dim} dimensions, normalization {new.normalization} "
        f"| shared, {config.shared_dim} | {config.backward} |",
        f"| forward map F | old, {old.dim} dimensions, normalization {old.normalization} "
        f"| shared, {config.shared_dim} | {config.forward} |",
        "",
        _lambda(config),
        "",
        *_validation(config),
        "",
        *(f"Warning: {warning}.\n" for warning in config.fit.get("warnings", [])),
        *(f"Note: {note}.\n" for note in config.notes),
        "## Use",
        "",
        "```python",
        "from crossfade import Upgrade",
        "",
        'upgrade = Upgrade.load("path/to/this/folder")',
        f"upgrade.backward(new_vectors)  # (rows, {new.dim}) -> (rows, {config.shared_dim})",
        f"upgrade.forward(old_vectors)   # (rows, {old.dim}) -> (rows, {config.shared_dim})",
        "```",
        "",
        f"Content hash: `{config.content_hash}`",
        "",
    ]
    return "\n".join(lines)


def describe_validation(config: Config) -> str:
    """What the validation scores are a measure of, and on how many rows."""
    rows, near = config.fit["validation_rows"], config.fit.get("neighbours", 10)
    if not config.validation:
        return f"{rows} validation rows: too few to measure anything"
    if config.fit["classes"]:
        return f"in percent, on {rows} validation rows: relevance from labels"
    return (
        f"in percent, on {rows} validation rows: agreement with the new model's {near} nearest "
        "neighbours, not judged"
    )


def _validation(config: Config) -> list[str]:
    labelled, near = config.fit["classes"], config.fit.get("neighbours", 10)
    lines = [
        f"## {'Compatibility' if labelled else 'Agreement with the new model'} on validation",
        "",
        f"{config.fit['validation_rows']} of {config.fit['rows']} pairs were held out of training. "
        "They chose the state that was kept, so read these numbers as a guide and measure on data "
        "of your own.",
        "",
    ]
    if not config.validation:
        return [*lines, "They are too few to measure anything."]
    lines.append(
        "Relevant is an item of the query's class."
        if labelled
        else f"Relevant is one of the query's {near} nearest items under the new model. That "
        "favours new queries by construction and judges nothing: evaluate with labels, qrels or "
        "lookups."
    )
    return [*lines, "", *_table(config)]


def _lambda(config: Config) -> str:
    if config.backward == "mlp":
        return "B is an mlp: it keeps no geometry by design."
    if config.lambda_asked is None:
        return f"‖WWᵀ−I‖ of B: {config.lambda_reached:.2g}."
    return f"λ asked {config.lambda_asked:g}, ‖WWᵀ−I‖ of B reached {config.lambda_reached:.2f}."


def _table(config: Config) -> list[str]:
    metrics = list(next(iter(config.validation.values())))
    lines = ["| Query/Gallery | " + " | ".join(metrics) + " | closed form |"]
    lines.append("|---" * (len(metrics) + 2) + "|")
    for case in CASES:
        reached = " | ".join(f"{config.validation[case][m]:.1f}" for m in metrics)
        closed = " / ".join(f"{config.closed_form[case][m]:.1f}" for m in metrics)
        lines.append(f"| {case} | {reached} | {closed} |")
    return lines
