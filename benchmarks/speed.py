"""Measures speed as ratios within one run: adfpp against the same arithmetic by hand, and against an empty call.

    python -m benchmarks.speed [--quick] [--write]

Every figure is the smallest of several repetitions; the two sides of a ratio are measured in turn.
"""

import argparse
import ast
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr

import adfpp
from adfpp.distributions import Probit


class Line(NamedTuple):
    """One row of the table."""

    what: str
    ours: str
    reference: str
    ratio: float
    allowed: float


def probit(x: Any, y: Any = None, noise: float = 1.0) -> None:
    """Probit regression, whose tilted moments have a closed form."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", Probit(x @ w, noise), obs=y)


def logit(x: Any, y: Any = None) -> None:
    """Logistic regression, whose tilted moments need quadrature."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


@jax.jit
def by_hand(mean: jax.Array, covariance: jax.Array, x: jax.Array, sign: jax.Array) -> Any:
    """Opper's (7.1)-(7.2) for the probit, without checks and statuses: the minimal arithmetic of a rank-one update."""

    def step(belief: Any, row: Any) -> Any:
        mean, covariance = belief
        x, sign = row
        image = covariance @ x
        variance = x @ image
        sd = jnp.sqrt(1.0 + variance)
        z = sign * (mean @ x) / sd
        log_z = log_ndtr(z)
        hazard = jnp.exp(-0.5 * z * z - 0.9189385332046727 - log_z)
        first, second = sign * hazard / sd, hazard * (hazard + z) / (1.0 + variance)
        return (mean + image * first, covariance - second * jnp.outer(image, image)), log_z

    return jax.lax.scan(step, (mean, covariance), (x, sign))


def smallest(functions: list[Callable[[], Any]], repeats: int) -> list[float]:
    """The smallest seconds of each function in several repetitions.

    The functions take turns of three calls each, so that the time of a function does not depend on cache contents that
    another function has left.
    """
    for f in functions:
        jax.block_until_ready(f())
    best = [np.inf] * len(functions)
    for _ in range(repeats):
        for i, f in enumerate(functions):
            for _ in range(3):
                begin = time.perf_counter()
                jax.block_until_ready(f())
                best[i] = min(best[i], time.perf_counter() - begin)
    return best


def rows(size: int, count: int) -> tuple[Any, Any, Any]:
    """The rows, labels and signs of a probit stream, on the device."""
    rng = np.random.default_rng(size)
    x = rng.normal(size=(count, size))
    sign = np.sign(x @ rng.normal(size=size) + rng.normal(size=count))
    return jnp.asarray(x), jnp.asarray((sign > 0).astype(int)), jnp.asarray(sign)


def against_hand(quick: bool) -> list[Line]:
    """Time of a row in a long batch with the full family, compared with the same arithmetic by hand."""
    out = []
    for size, count in ((5, 1 << 16), (50, 1 << 15), (200, 1 << 13), (500, 1 << 11)):
        count = count // 4 if quick else count
        x, y, sign = rows(size, count)
        start = (jnp.zeros(size), jnp.eye(size))
        runs = [lambda x=x, sign=sign, start=start: by_hand(*start, x, sign)]
        for model in (probit, logit):
            adf = adfpp.ADF(model)
            state = adf.init(jax.random.key(0), x, y=y)
            runs.append(lambda adf=adf, state=state, x=x, y=y: adf.update(state, x, y=y))
        hand, closed, quadrature = (1e6 * s / count for s in smallest(runs, 5))
        allowed = {5: (2.5, 6.0), 50: (1.5, 6.0), 200: (1.5, 2.5), 500: (1.5, 2.5)}[size]
        for name, ours, limit in (
            ("closed form", closed, allowed[0]),
            ("quadrature", quadrature, allowed[1]),
        ):
            out.append(Line(f"a row, N={size}, {name}", f"{ours:.2f} µs", f"{hand:.2f} µs by hand", ours / hand, limit))
    return out


def large_diagonal() -> list[Line]:
    """Time of a row with the diagonal family at N=100,000, compared with copying the state and the row."""
    size, count = 100_000, 32
    x, y, _ = rows(size, count)
    host = np.asarray(x)
    mean, sd = np.zeros(size), np.ones(size)

    def copying() -> None:
        for row in host:
            mean.copy(), sd.copy(), row.copy()

    adf = adfpp.ADF(probit, family="diagonal")
    state = adf.init(jax.random.key(0), x, y=y, noise=10.0)
    biggest = max(a.size for a in jax.tree.leaves(state.belief))
    assert biggest == size, "no N×N object"
    copied, ours = smallest([copying, lambda: adf.update(state, x, y=y, noise=10.0)], 10)
    scale = 1e6 / count
    return [
        Line(
            "a row, N=100,000, diagonal",
            f"{ours * scale:.0f} µs",
            f"{copied * scale:.0f} µs to copy it in NumPy",
            ours / copied,
            4.0,
        )
    ]


def dispatch() -> list[Line]:
    """Time of one row from Python, compared with an empty jitted function with the same arguments."""
    x, y, _ = rows(5, 1024)
    one, label = np.asarray(x[:1]), np.asarray(y[:1])
    calls = 2000
    out = []
    empty = jax.jit(lambda state, x, y=None: (state, (x[:, 0], x[:, 0], x[:, 0])))
    for name, model in (("closed form", probit), ("quadrature", logit)):
        adf = adfpp.ADF(model)
        start = adf.init(jax.random.key(0), x, y=y)

        def nothing(start: Any = start) -> Any:
            for _ in range(calls):
                result = empty(start, one, y=label)
            return result

        def updates(adf: Any = adf, start: Any = start) -> Any:
            state = start
            for _ in range(calls):
                state, info = adf.update(state, one, y=label)
            return state

        bare, ours = (1e6 * s / calls for s in smallest([nothing, updates], 7))
        out.append(
            Line(
                f"one row from Python, N=5, {name}",
                f"{ours:.1f} µs",
                f"{bare:.1f} µs for an empty call",
                ours / bare,
                3.0,
            )
        )
    return out


def dispatch_in_line() -> list[Line]:
    """The lines of ``dispatch`` in a process where JAX runs every program in the calling thread."""
    code = (
        "import jax; jax.config.update('jax_enable_x64', True)\n"
        "jax.config.update('jax_cpu_enable_async_dispatch', False)\n"
        "from benchmarks.speed import dispatch; print([tuple(line) for line in dispatch()])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [Line(*values) for values in ast.literal_eval(done.stdout)]
    return [line._replace(what=f"{line.what}, without asynchronous dispatch") for line in lines]


def importing() -> list[Line]:
    """Time to import a public name of adfpp, compared with ``import numpyro``, in new processes with cached bytecode.

    ``import adfpp`` alone would import nothing: the names are imported when one of them is first used.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    imports = {"numpyro": "import numpyro", "adfpp": "from adfpp import ADF"}
    seconds: dict[str, list[float]] = {"numpyro": [], "adfpp": []}
    for _ in range(8):
        for name, taken in seconds.items():
            code = f"import time; t = time.perf_counter(); {imports[name]}; print(time.perf_counter() - t)"
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            taken.append(float(done.stdout))
    ours, theirs = min(seconds["adfpp"]), min(seconds["numpyro"])
    return [Line("from adfpp import ADF", f"{ours:.3f} s", f"{theirs:.3f} s for numpyro", ours / theirs, 1.15)]


_FIRST = """
import time
import numpy as np, jax
from adfpp import ADF
from benchmarks.speed import {model} as model
x = np.random.default_rng(0).normal(size=(1000, 20)); y = (x[:, 0] > 0).astype(int)
begin = time.perf_counter()
adf = ADF(model)
state = adf.init(jax.random.key(0), x, y=y)
jax.block_until_ready(adf.update(state, x, y=y))
print(time.perf_counter() - begin)
"""


def first_update() -> list[Line]:
    """Time from a new model to its first update, in a new process: reading, checking, compiling, 1000 rows."""
    out = []
    for model in ("probit", "logit"):
        code = _FIRST.format(model=model)
        taken = min(
            float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
            for _ in range(3)
        )
        out.append(Line(f"first update of a new {model} model", f"{taken:.2f} s", "4 s", taken / 4.0, 1.0))
    return out


def table(lines: list[Line]) -> str:
    """The lines as a Markdown table."""
    head = ["| what | adfpp | reference | ratio | allowed | |", "|---|---|---|---|---|---|"]
    body = [
        f"| {s.what} | {s.ours} | {s.reference} | {s.ratio:.2f} | {s.allowed:g} | "
        f"{'' if s.ratio <= s.allowed else 'over'} |"
        for s in lines
    ]
    return "\n".join(head + body)


def main() -> None:
    """Measures, prints, and writes docs/speed/ if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter streams")
    parser.add_argument("--write", action="store_true", help="write docs/speed/jax-VERSION.md")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    lines = [
        *against_hand(options.quick),
        *large_diagonal(),
        *dispatch(),
        *dispatch_in_line(),
        *importing(),
        *first_update(),
    ]
    version = ".".join(jax.__version__.split(".")[:2])
    text = (
        f"# Speed, JAX {version}, float64, two cores\n\nMade by `python -m benchmarks.speed --write`. Ratios within "
        f"one run; the microseconds belong to the machine it ran on.\n\n{table(lines)}\n"
    )
    print(text)
    if options.write:
        path = Path(__file__).parent.parent / "docs" / "speed" / f"jax-{version}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
