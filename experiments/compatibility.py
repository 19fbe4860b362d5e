"""What Tables 1a, 1b and their appendices have in common: every method, every case, the claims."""

from __future__ import annotations

from experiments import published
from experiments.fits import METRICS, Run, gathered
from experiments.outcome import Outcome
from experiments.published import FASTFILL, FCT, INDEPENDENT, OURS

CROSSFADE = "Crossfade (fast)"
# With B the identity, B(new)/F(old) is the paper's new/F(old).
_OWN_CASE = {"new/F(old)": "B(new)/F(old)"}
CASES = ("F(old)/old", "F(old)/F(old)", "B(new)/F(old)", "B(new)/old", "B(new)/B(new)")


def compare(run: Run, experiment: str, title: str, against: str, substitution: str) -> Outcome:
    """FCT, FastFill, the paper's recipe and ours, beside the published table `against`."""
    table = published.COMPATIBILITY[against]
    out = Outcome(experiment, title, against, substitution, ("Method", "Query/Gallery"), METRICS)
    out.facts = run.facts()
    methods = {FCT: "FCT", FASTFILL: "FastFill", OURS: "Ours", CROSSFADE: "Crossfade"}
    found = {
        shown: [run.table(run.fit(method, seed)).means() for seed in run.seeds]
        for shown, method in methods.items()
    }
    for case in ("old/old", "new/old", "new/new"):
        out.add((INDEPENDENT, case), table[INDEPENDENT, case], gathered(found[OURS], case))
    for method in (FCT, FASTFILL):
        for case in ("F(old)/old", "F(old)/F(old)", "new/F(old)"):
            runs = gathered(found[method], _OWN_CASE.get(case, case))
            out.add((method, case), table.get((method, case)), runs)
    for case in CASES:
        out.add((OURS, case), table[OURS, case], gathered(found[OURS], case))
    for case in CASES:
        out.add((CROSSFADE, case), None, gathered(found[CROSSFADE], case))
    claims(out)
    return out


def claims(out: Outcome) -> None:
    """Those of Sections 4.3 and 4.4."""
    today, plain = (INDEPENDENT, "old/old"), (INDEPENDENT, "new/old")
    out.claim("new/old is not compatible: old/old is above it", [(today, plain)])
    for method in (FCT, FASTFILL):
        out.claim(
            f"{method} lifts old: F(old)/F(old) and new/F(old) above old/old",
            [((method, case), today) for case in ("F(old)/F(old)", "new/F(old)")],
        )
        out.claim(
            f"{method} is not compatible with old itself: F(old)/old below old/old",
            [(today, (method, "F(old)/old"))],
        )
    out.claim(
        "FastFill is above FCT in F(old)/F(old) and new/F(old)",
        [((FASTFILL, case), (FCT, case)) for case in ("F(old)/F(old)", "new/F(old)")],
    )
    out.claim("Ours: B(new)/old above old/old", [((OURS, "B(new)/old"), today)])
    out.claim("Ours: F(old)/old above old/old", [((OURS, "F(old)/old"), today)])
    for case, peer in (("F(old)/F(old)",) * 2, ("B(new)/F(old)", "new/F(old)")):
        for method in (FCT, FASTFILL):
            out.claim(f"Ours: {case} above {method}'s {peer}", [((OURS, case), (method, peer))])
    for name in (OURS, CROSSFADE):
        out.claim(
            f"{name}: an orthogonal B keeps the new model: B(new)/B(new) equals new/new",
            [((name, "B(new)/B(new)"), (INDEPENDENT, "new/new"))],
            level=True,
        )
