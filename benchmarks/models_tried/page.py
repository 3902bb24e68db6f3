"""Makes the page docs/models-tried.md from the records."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.models_tried.cases import CASES, RUNS, Case
from benchmarks.models_tried.run import RAN, Record, expected

PAGE = Path(__file__).parent.parent.parent / "docs" / "models-tried.md"

_TEXT = """# Models tried

This page shows what adfpp does with {count} published models. They come from NumPyro's examples, Stan's case studies,
posteriordb, the BUGS manual and textbooks. They were written as users of NumPyro write them, and nothing in them or in
the options of adfpp was adapted to the other. The data is simulated from each model with fixed seeds at the published
size, or it is the published data where it is small or comes with scikit-learn or statsmodels.

What went wrong with models of this page has led to corrections of adfpp, and only their results were made again. The
page is therefore no independent test of the verdicts; [How often the verdicts are right](verdicts.md) is one.

`python -m benchmarks.models_tried --write` makes the page. It keeps its results in the folder
`.benchmarks/models-tried`, and runs only what is missing or has changed. The versions are adfpp {adfpp}, JAX {jax} and
NumPyro {numpyro}, in float64.

{missing}Each model runs in a process of its own: one pass of ADF over the rows in the order of the data, then EP, both
with default options, then `adfpp.check` on both. A long run of NUTS is the reference where there is one. Errors are in
unconstrained space: the error of a mean is in NUTS's posterior standard deviations (sd), followed by NUTS's own
Monte-Carlo standard error (MCSE) of that mean. The ratios are the smallest and the largest of the posterior sds to
those of NUTS. A posterior is called **right** if all means are within {mean:g} sd and all sds within {width:.0%}, up to
{noise:g} MCSE. A model with a symmetry, such as the labels of a mixture, has no reference.

## Summary

| outcome | models |
|---|---|
{outcomes}

A refusal is right if the model cannot be learned row by row, and the message gives this reason. The verdicts of
`adfpp.check` compared with the reference (models with a clean reference):

{verdicts}

Silently wrong, that is the verdict is "trust it" and a mean is off by more than {silently:g} sd: {silent}.

The field that adfpp finds for a row is the smallest possible one in {smallest} of {judged} models that run.

Seconds of the first call of ADF in a fresh process, with reading and compiling the model, and of EP after it, for
models that are common, on two cores. A second call takes only the time of the work itself. Other work may have run on
the machine at the same time, so the times are upper bounds.

| model | ADF, first call | second | EP, first call | second |
|---|---|---|---|---|
{first}

## All models that run

"Field" is the number of numbers in the field of a row's factors, then in those of prior factors, and in parentheses the
smallest possible for a row's factor if it is smaller than what was found. "First" is the first call of ADF and of EP,
in seconds.

{heads}
{table}

## Models that do not run

| model | source | expected | outcome | what adfpp says |
|---|---|---|---|---|
{refused}
"""

_HEADS = (
    "model",
    "source",
    "rows",
    "numbers",
    "field",
    "first",
    "learner",
    "error of a mean (MCSE)",
    "sd ratios",
    "right",
    "verdict",
    "rows marked",
)


def page(records: Sequence[Record]) -> str:
    """The page, from the records of the cases that have one."""
    from benchmarks.models_tried import run

    case_of = {case.name: case for case in CASES}
    pairs = [(case_of[r["name"]], r) for r in records if r["name"] in case_of]
    outcomes = Counter(expected(case, r) for case, r in pairs)
    ran = [(case, r) for case, r in pairs if "fields" in r]
    judged = [(case, r) for case, r in ran if case.smallest is not None]
    silent = [f"{c.name} ({kind.upper()})" for c, r in ran for kind in ("adf", "ep") if _silent(r, kind)]
    return _TEXT.format(
        count=len(pairs),
        missing=_missing(pairs),
        **(records[0]["versions"] if records else {"adfpp": "", "jax": "", "numpyro": ""}),
        mean=run.MEAN,
        width=run.SD,
        noise=run.NOISE,
        outcomes="\n".join(f"| {name} | {number} |" for name, number in outcomes.most_common()),
        verdicts=confusion([r for _, r in ran]),
        silently=run.SILENTLY,
        silent="; ".join(silent) or "none",
        smallest=sum(max(r["fields"]) <= case.smallest for case, r in judged),  # type: ignore[operator]
        judged=len(judged),
        first="\n".join(_first(case, r) for case, r in ran if case.common),
        heads=f"| {' | '.join(_HEADS)} |\n|{'---|' * len(_HEADS)}",
        table="\n".join(line for case, r in ran for line in _lines(case, r)),
        refused="\n".join(_refusal(case, r) for case, r in pairs if r["outcome"] != RAN),
    )


def _missing(pairs: Sequence[tuple[Case, Record]]) -> str:
    """A paragraph that names the cases without a result."""
    tried = {case.name for case, _ in pairs}
    names = [case.name for case in CASES if case.name not in tried]
    if not names:
        return ""
    verb = "has" if len(names) == 1 else "have"
    return f"{len(names)} of the {len(CASES)} models in the list {verb} not been run: {'; '.join(names)}.\n\n"


def _silent(record: Record, kind: str) -> bool:
    return record.get(kind, {}).get("silently_wrong", False) and record["nuts"]["clean"]


def confusion(records: Sequence[Record]) -> str:
    """Verdicts against what the reference shows, for ADF and EP."""
    counts: Counter[tuple[str, bool, str]] = Counter()
    for record in records:
        for kind in ("adf", "ep"):
            one = record.get(kind, {})
            if "verdict" in one and "right" in one and record["nuts"]["clean"]:
                counts[kind, one["right"], one["verdict"]] += 1
    verdicts = ("trust", "rough", "do not use")
    lines = [f"| posterior | {' | '.join(verdicts)} |", "|---|---|---|---|"]
    for kind in ("adf", "ep"):
        for right in (True, False):
            cells = [str(counts[kind, right, verdict]) for verdict in verdicts]
            lines.append(f"| {kind.upper()}, {'right' if right else 'wrong'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _first(case: Case, record: Record) -> str:
    times = [_seconds(record, kind, which) for kind in ("adf", "ep") for which in ("first_seconds", "seconds")]
    return f"| {case.name} | {' | '.join(times)} |"


def _seconds(record: Record, kind: str, which: str) -> str:
    return f"{record[kind][which]:.1f}" if kind in record else "–"


def _lines(case: Case, record: Record) -> list[str]:
    """One line for each learner."""
    found = max(record["fields"])
    fields = ", ".join(map(str, record["fields"]))
    fields += f"; {', '.join(map(str, record['prior_fields']))}" if record["prior_fields"] else ""
    fields += f" ({case.smallest})" if case.smallest is not None and found > case.smallest else ""
    first = " + ".join(_seconds(record, kind, "first_seconds") for kind in ("adf", "ep"))
    lead = [case.name, case.source, str(record["rows"]), str(record["numbers"]), fields, first]
    out = []
    for kind in ("adf", "ep"):
        if kind in record:
            out.append("| " + " | ".join([*lead, kind.upper(), *_figures(case, record, record[kind])]) + " |")
            lead = [""] * len(lead)
    return out


def _figures(case: Case, record: Record, one: dict[str, Any]) -> list[str]:
    settled = "" if one.get("converged", True) else "; not converged"
    marked = ", ".join(f"{count} {name}" for name, count in one["marked"].items()) or "–"
    verdict = one.get("grade", "–") + settled
    if "right" not in one:
        return [case.unjudged or "–", "–", "–", verdict, marked]
    right = "yes" if one["right"] else "no"
    if not record["nuts"]["clean"]:
        right = f"unknown, R̂ {record['nuts']['r_hat']:.2f}"
    error = f"{one['mean_error']:.2f} ({one['mcse']:.2f}), {one['worst']}"
    return [error, f"{one['sd_low']:.2f} – {one['sd_high']:.2f}", right, verdict, marked]


def _refusal(case: Case, record: Record) -> str:
    message = record.get("message", "")
    first = re.split(r"(?<=[.:]) ", " ".join(message.split()), maxsplit=2)
    said = " ".join(first[:2]) if first and first[0].endswith("Error:") else first[0] if first else ""
    stage = f", in stage {record['stage']}" if record.get("stage", "adf") != "adf" else ""
    cells = [case.name, case.source, case.expectation if case.expectation != RUNS else "runs"]
    said = said[:300].replace("|", "\\|")
    return "| " + " | ".join([*cells, expected(case, record) + stage, said]) + " |"
