"""Makes the page docs/verdicts.md from the records."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from adfpp.judge.evidence import FACTOR, MEAN, MISLEADING, SD
from benchmarks.verdicts.cases import STREAMS
from benchmarks.verdicts.run import (
    BETTER,
    DO_NOT_USE,
    NOISE,
    TRUST,
    Record,
    is_false_alarm,
    is_false_trust,
    is_unclean,
)

PAGE = Path(__file__).parent.parent.parent / "docs" / "verdicts.md"

_TEXT = """# How often the verdicts are right

`adfpp.check` judges a posterior without a reference. This page compares its verdicts with the truth, in {count} cases:
{models} models, with streams whose rows are mixed, sorted, drifting or partly outliers, in float64 and float32. In this
page *sd* means posterior standard deviation. All errors are in unconstrained space.

`python -m benchmarks.verdicts --group report --write` makes the page. It keeps a record of each case in the folder
`.benchmarks/verdicts`, and runs only what is missing or has changed. The records were made with adfpp {adfpp}, JAX
{jax} and NumPyro {numpyro}.

## What the verdicts mean

| verdict | meaning |
|---|---|
| "trust it" | no mean is off by more than {mean:g} sd, and no sd by more than {sd:.0%} |
| "run EP", "run NUTS", "run Gibbs sampling" | the errors are larger than that, or they could not be measured |
| "do not use it as it is" | a mean is off by more than {misleading:g} sd or an sd by more than a factor \
of {factor:g}; or the rows do not follow one model; or priors or more than 5 % of the rows were refused |

The truth is a run of NUTS with four chains of 2500 draws on the same rows. Its own Monte-Carlo standard error (MCSE) is
taken into account as follows. A case is **wrong** if an error is beyond the limits of "trust it" by more than {noise:g}
MCSE, **right** if all errors are within the limits, and **undecided** between the two. If the parameters change along
the rows, the case is **drifting**: then no posterior of the model should be trusted, even if it is the same as that of
NUTS. A *false trust* is a case that is wrong or drifting with the verdict "trust it". A *false alarm* is a case that is
right with another verdict.

The thresholds of the check were set with other models and other data (`--group calibration`, and some published
models), with one exception: the threshold for a change along the rows was first 1e-6. Drifting streams of one model of
this page showed that this is too strict, and it became 1e-4. The data of all cases was then drawn anew. One fault was
found with the cases of this page: rows that are sorted by their observed value were tested for changes if their weights
were not good enough to rank them. It was corrected, and the sorted cases of EP were run again.

## Result

| | "trust it" | "run EP", "run NUTS" | "do not use it as it is" |
|---|---|---|---|
{confusion}

{false_trust} of the {wrong} cases that are wrong or drifting are false trusts, and {false_alarms} of the {right} cases
that are right are false alarms.{unclean}

The check itself took {seconds:.0f} s at the median and {slowest:.0f} s at most, on one core of a busy machine; of
processor time {work:.0f} s at the median. The first check of a model and a learner compiled {programs:.0f} programs at
the median.

## Streams

| stream | rows |
|---|---|
{streams}

## All cases

"Error" is the largest error of a mean in sds of NUTS (MCSE), and "sds" the ratio of an sd to that of NUTS that is
furthest from 1. "Found" has what the check found for both, and the method by which it measured them. "Drift" is the
p-value of a change along the rows; there is none where the rows are sorted by the observed value.

| model | stream | learner | dtype | error | sds | found | method | drift | verdict | |
|---|---|---|---|---|---|---|---|---|---|---|
{cases}
"""
_CLASSES = ("right", "undecided", "wrong", "drifting")


def page(records: Sequence[Record]) -> str:
    """The page, from the records of the report."""
    clean = [r for r in records if not is_unclean(r)]
    table = Counter((_truth(r), r["verdict"]) for r in clean)
    confusion = "\n".join(
        f"| **{name}** | " + " | ".join(str(table[name, verdict]) for verdict in (TRUST, BETTER, DO_NOT_USE)) + " |"
        for name in _CLASSES
    )
    unclean = len(records) - len(clean)
    return _TEXT.format(
        count=len(records),
        models=len({r["model"] for r in records}),
        mean=MEAN,
        sd=SD,
        misleading=MISLEADING,
        factor=FACTOR,
        noise=NOISE,
        confusion=confusion,
        false_trust=sum(map(is_false_trust, clean)),
        wrong=sum(_truth(r) in ("wrong", "drifting") for r in clean),
        false_alarms=sum(map(is_false_alarm, clean)),
        right=sum(_truth(r) == "right" for r in clean),
        unclean=f" {unclean} more cases have no clean reference and are not counted." if unclean else "",
        seconds=float(np.median([r["seconds"] for r in records])),
        slowest=max(r["seconds"] for r in records),
        work=float(np.median([r["work"] for r in records])),
        programs=float(np.median(_first_programs(records))),
        streams="\n".join(f"| {name} | {words} |" for name, words in STREAMS.items()),
        cases="\n".join(map(_row, records)),
        **records[0]["versions"],
    )


def _truth(record: Record) -> str:
    if "within" not in record:
        return "drifting"
    return "right" if record["within"] else "wrong" if record["beyond"] else "undecided"


def _first_programs(records: Sequence[Record]) -> list[int]:
    """The largest number of programs compiled in a check of each model and learner: later ones share them."""
    most: dict[tuple[str, str], int] = {}
    for r in records:
        key = r["model"], r["learner"]
        most[key] = max(most.get(key, 0), r["programs"])
    return list(most.values())


def _row(record: Record) -> str:
    found = record["found"]
    error, sds = "", ""
    if "error" in record:
        error = f"{record['error']:.3f} ({record['mcse']:.3f})"
        sds = f"{record['sd_ratio']:.2f}"
    low, high = found["sd_ratio"]
    p = found["drift"][0]
    mark = "false trust" if is_false_trust(record) else "false alarm" if is_false_alarm(record) else ""
    mark = "no clean reference" if is_unclean(record) else mark
    cells = [
        record["model"],
        record["stream"],
        record["learner"],
        record["dtype"],
        error,
        sds,
        f"{found['error']:.3f}, {low:.2f}–{high:.2f}",
        found["method"],
        "" if np.isnan(p) else f"{p:.1g}",
        record["grade"],
        f"**{mark}**" if mark else "",
    ]
    return "| " + " | ".join(cells) + " |"
