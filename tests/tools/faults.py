"""The faults that ``plant_faults`` plants: thirty realistic mistakes, spread over the packages.

They were chosen from the code alone, in lines whose behaviour a user would notice, before the tests were looked at. A
fault that the tests miss calls for a test of what was promised, and not for another fault. When a line of code changes,
its fault changes with it.
"""

from typing import NamedTuple


class Fault(NamedTuple):
    """One mistake.

    Attributes:
        name: A few words, joined by hyphens.
        kind: Which kind of mistake it is.
        file: The file, as a path from the root of the repository.
        old: The text as it should be, which occurs exactly once in the file.
        new: The text with the mistake.
        tests: The test files that are tried first.
    """

    name: str
    kind: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS = (
    # ------------------------------------------------------------------------------------------ engine
    Fault(
        "drift-away-from-prior",
        "sign",
        "adfpp/engine/dynamics.py",
        "Transition(kept, -jnp.expm1(-gap / self.timescale) * setup.mean, noise)",
        "Transition(kept, jnp.expm1(-gap / self.timescale) * setup.mean, noise)",
        ("tests/engine/test_dynamics.py", "tests/learn/test_passes.py"),
    ),
    Fault(
        "fraction-not-undone",
        "dropped term",
        "adfpp/engine/sites.py",
        "precision = back.T @ excess @ back / cavity.fraction",
        "precision = back.T @ excess @ back",
        ("tests/engine/test_sites.py", "tests/learn/ep/test_sweeps.py"),
    ),
    Fault(
        "time-lost-with-refused-row",
        "missing guard",
        "adfpp/engine/kernel.py",
        "moving = Moving(jnp.where(accepted, 0.0, gap), moving.started | accepted, moving.setup)",
        "moving = Moving(jnp.zeros_like(gap), moving.started | accepted, moving.setup)",
        ("tests/engine/test_dynamics.py", "tests/learn/test_adf.py"),
    ),
    Fault(
        "row-half-absorbed",
        "missing guard",
        "adfpp/engine/kernel.py",
        "    window = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), window, before)\n",
        "",
        ("tests/engine/test_kernel.py", "tests/learn/test_adf.py"),
    ),
    Fault(
        "evidence-not-summed",
        "dropped term",
        "adfpp/engine/status.py",
        '_SUMMED = ("log_z", "evidence", "clamped")',
        '_SUMMED = ("log_z", "clamped")',
        ("tests/engine/test_status.py", "tests/learn/ep/test_sweeps.py"),
    ),
    Fault(
        "volume-of-noise-forgotten",
        "dropped term",
        "adfpp/engine/tilt/closed.py",
        "log_det = jnp.sum(jnp.log(jnp.diagonal(noise))) + jnp.sum(jnp.log(jnp.diagonal(precision_root)))",
        "log_det = jnp.sum(jnp.log(jnp.diagonal(precision_root)))",
        ("tests/engine/tilt/test_closed.py",),
    ),
    Fault(
        "shares-of-mixture-swapped",
        "swapped terms",
        "adfpp/engine/tilt/montecarlo.py",
        "jnp.logaddexp(math.log(share) + log_cavity, math.log1p(-share) + log_fit)",
        "jnp.logaddexp(math.log1p(-share) + log_cavity, math.log(share) + log_fit)",
        ("tests/engine/tilt/test_montecarlo.py",),
    ),
    Fault(
        "hidden-peak-sought-elsewhere",
        "dropped factor",
        "adfpp/engine/tilt/quadrature.py",
        "there = jnp.exp(values(centre + sd * u) - top - 0.5 * u * u)",
        "there = jnp.exp(values(centre + u) - top - 0.5 * u * u)",
        ("tests/engine/tilt/test_quadrature.py",),
    ),
    Fault(
        "division-by-latent-is-affine",
        "missing guard",
        "adfpp/engine/trace/degree.py",
        "affine = varying == 1 and operands[numerator] == Degree.AFFINE",
        "affine = varying == 1",
        ("tests/engine/trace/test_degree.py", "tests/engine/trace/test_cut.py"),
    ),
    Fault(
        "largest-effect-by-sign",
        "sign",
        "adfpp/engine/families/product/marginals.py",
        "size = jnp.sum(jnp.abs(effects[:, component.candidates]), (0, 2))",
        "size = jnp.sum(effects[:, component.candidates], (0, 2))",
        ("tests/engine/families/product/test_marginals.py",),
    ),
    # ------------------------------------------------------------------------------------------ model
    Fault(
        "options-of-the-first-call",
        "dropped call",
        "adfpp/model/joint.py",
        "self.layout = program.layout.with_fixed(bound.leaves)",
        "self.layout = program.layout",
        ("tests/model/test_joint.py",),
    ),
    Fault(
        "masked-nan-refuses-row",
        "missing guard",
        "adfpp/model/observations.py",
        "finite_at = put(jnp.stack([jnp.all(a | ~there) for a, there in finite]))",
        "finite_at = put(jnp.stack([jnp.all(a) for a, there in finite]))",
        ("tests/model/test_observations.py", "tests/model/test_joint_local.py"),
    ),
    Fault(
        "scaled-observation-accepted",
        "missing guard",
        "adfpp/model/visit.py",
        'if not _is_one(site["scale"]):',
        'if not _is_one(site["scale"]) and not site["is_observed"]:',
        ("tests/model/test_visit.py", "tests/model/test_refusals.py"),
    ),
    Fault(
        "root-of-prior-not-transposed",
        "transposition",
        "adfpp/model/priors/gaussian.py",
        "root = np.linalg.inv(np.linalg.cholesky(precision)).T",
        "root = np.linalg.inv(np.linalg.cholesky(precision))",
        ("tests/model/priors/test_gaussian.py",),
    ),
    Fault(
        "moving-prior-taken-for-base",
        "dropped term",
        "adfpp/model/local/plan.py",
        "exact = with_parameters - moving",
        "exact = with_parameters",
        ("tests/model/local/test_plan.py", "tests/model/test_joint_local.py"),
    ),
    # ------------------------------------------------------------------------------------------ learn
    Fault(
        "leave-one-out-without-ratio",
        "dropped term",
        "adfpp/learn/importance.py",
        "ratios = log_ratio - log_lik",
        "ratios = -log_lik",
        ("tests/learn/test_importance.py",),
    ),
    Fault(
        "damped-step-looks-small",
        "dropped factor",
        "adfpp/learn/ep/schedules.py",
        "size = problem.distance(before, current.belief) / damping",
        "size = problem.distance(before, current.belief)",
        ("tests/learn/ep/test_schedules.py",),
    ),
    Fault(
        "quantiles-turned-round",
        "swapped branch",
        "adfpp/learn/posterior.py",
        "out[latent.name] = jnp.where(at(jnp.ones(())) >= at(-jnp.ones(())), at(z), at(-z))",
        "out[latent.name] = at(z)",
        ("tests/learn/test_posterior.py",),
    ),
    Fault(
        "refused-row-does-not-wait",
        "dropped branch",
        "adfpp/learn/passes.py",
        "belief_then = jax.lax.cond(refused, waited, lambda b: b, belief)",
        "belief_then = belief",
        ("tests/learn/test_passes.py",),
    ),
    Fault(
        "evidence-without-priors",
        "dropped term",
        "adfpp/learn/ep/sweeps.py",
        "- 0.5 * float(off @ off) + float(log_volume) + float(rows) + added",
        "- 0.5 * float(off @ off) + float(log_volume) + float(rows)",
        ("tests/learn/ep/test_sweeps.py",),
    ),
    Fault(
        "info-in-another-order",
        "swapped direction",
        "adfpp/learn/stream.py",
        "back = np.argsort(self.order)",
        "back = self.order",
        ("tests/learn/test_adf.py",),
    ),
    Fault(
        "moved-before-first-row",
        "off by one",
        "adfpp/learn/adf.py",
        "Moving(state.clock, state.rows > 0, state.setup)",
        "Moving(state.clock, state.rows >= 0, state.setup)",
        ("tests/learn/test_adf.py", "tests/engine/test_dynamics.py"),
    ),
    # ------------------------------------------------------------------------------------------ judge
    Fault(
        "row-predicted-from-itself",
        "swapped order",
        "adfpp/judge/ranks.py",
        """\
        theta = learner.get_posterior(state).draw(keys[0], _DRAWS)
        replicas = joint.replicate(keys[1], theta, int(batch[0]))
        batch_args, batch_kwargs = _rows(joint, batch, args, kwargs)
        state, info = learner.update(state, *batch_args, **batch_kwargs)
""",
        """\
        batch_args, batch_kwargs = _rows(joint, batch, args, kwargs)
        state, info = learner.update(state, *batch_args, **batch_kwargs)
        theta = learner.get_posterior(state).draw(keys[0], _DRAWS)
        replicas = joint.replicate(keys[1], theta, int(batch[0]))
""",
        ("tests/judge/test_ranks.py", "tests/judge/test_check.py"),
    ),
    Fault(
        "narrow-posterior-passes",
        "dropped branch",
        "adfpp/judge/verdict.py",
        "return max(1.0 / low if low != 0.0 else math.inf, high) - 1.0",
        "return high - 1.0",
        ("tests/judge/test_verdict.py", "tests/judge/test_check.py"),
    ),
    Fault(
        "divergence-with-wrong-volume",
        "sign",
        "adfpp/judge/measures.py",
        "logs = np.linalg.slogdet(other)[1] - np.linalg.slogdet(covariance)[1]",
        "logs = np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(other)[1]",
        ("tests/judge/test_compare.py",),
    ),
    Fault(
        "unknown-r-hat-is-clean",
        "missing guard",
        "adfpp/judge/references.py",
        "if not worst <= R_HAT:",
        "if worst > R_HAT:",
        ("tests/judge/test_verdict.py", "tests/judge/test_compare.py"),
    ),
    # ------------------------------------------------------------------------------------------ io
    Fault(
        "probes-blind-to-places",
        "dropped factor",
        "adfpp/io/fingerprint.py",
        "return (flat @ np.linspace(1.0, 2.0, flat.shape[1])).tolist()",
        "return (flat @ np.ones(flat.shape[1])).tolist()",
        ("tests/io/test_checkpoint.py",),
    ),
    Fault(
        "one-column-is-no-matrix",
        "dropped branch",
        "adfpp/io/mapping.py",
        '        columns += "+" if self.matrix and len(self.columns) == 1 else ""\n',
        "",
        ("tests/io/test_mapping.py",),
    ),
    Fault(
        "whole-numbers-rounded",
        "missing guard",
        "adfpp/io/rows.py",
        "wrong = ~missing & ((values != np.floor(values)) | (np.abs(values) > 2.0**53))",
        "wrong = ~missing & (values != np.floor(values))",
        ("tests/io/test_rows.py",),
    ),
    Fault(
        "surplus-cells-ignored",
        "missing guard",
        "adfpp/io/csv_reader.py",
        "if len(cells) != width:",
        "if len(cells) < width:",
        ("tests/io/test_csv_reader.py",),
    ),
)
