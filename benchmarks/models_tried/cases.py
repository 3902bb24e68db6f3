"""The table of cases: which model, whose, on which data, and what is expected of adfpp."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpyro.infer import init_to_median

from benchmarks.models_tried import hierarchies as h
from benchmarks.models_tried import latents as m
from benchmarks.models_tried import regression as r
from benchmarks.models_tried import series as s
from benchmarks.references import Sampling

# What is expected: that the model runs, or the reason for which adfpp is right to refuse it.
RUNS = "runs"
DEPENDENT = "rows are not independent: a row's likelihood reads other rows"
GROWS = "a latent has as many values as there are rows, with a prior that joins them"
IMPROPER = "the prior is improper, so that there is no belief to start from"
COUNTED = "the number of latents is computed from the values of the data"
INFINITE = "a discrete latent of each row has infinitely many values"
NO_DERIVATIVE = "the likelihood has no derivative with respect to its parameters, so that NUTS fails as well"
UNSHARED = "the rows have no latent in common, so that nothing is learned from one row for the next"
AMBIGUOUS = "another argument is as long as the rows, so that the user has to name those with rows"

GELMAN_HILL, BDA, MCELREATH = "Gelman & Hill", "BDA3", "McElreath, Statistical Rethinking"
NUMPYRO, POSTERIORDB, BUGS = "NumPyro", "posteriordb", "BUGS"
KERY = "Kéry & Schaub, Bayesian Population Analysis"
STAN = "Stan User's Guide"


@dataclass(frozen=True)
class Case:
    """One published model and its data.

    Attributes:
        name: The name in the table.
        source: The book or example.
        model: The NumPyro model.
        load: Returns the model's keyword arguments.
        smallest: The size of the smallest possible field of a row, by hand, without latents of single rows, which are
            integrated out; None where adfpp should refuse the model.
        why: The numbers that such a field consists of.
        expectation: ``RUNS``, or the reason for which refusing is right.
        words: Where refusing is right: a word that an error with the right reason contains.
        options: Options of ``ADF`` and ``EP``.
        sampling: How NUTS samples the reference; None if there is no reference.
        unjudged: Why there is no reference.
        common: Whether it is one of the twenty commonest models, whose first call is listed in the summary.
    """

    name: str
    source: str
    model: Callable[..., None]
    load: Callable[[], dict[str, Any]]
    smallest: int | None
    why: str = ""
    expectation: str = RUNS
    words: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling | None = field(default_factory=lambda: Sampling(draws=1500))
    unjudged: str = ""
    common: bool = False


def _refused(name: str, source: str, model: Any, load: Any, expectation: str, words: str) -> Case:
    return Case(name, source, model, load, None, expectation=expectation, words=words)


def _modes(name: str, source: str, model: Any, load: Any, smallest: int, why: str) -> Case:
    """A case whose posterior has several modes by symmetry, so that its moments are no reference."""
    return Case(name, source, model, load, smallest, why, sampling=None, unjudged="symmetric modes")


_WIDE = Sampling(draws=1500, accept=0.95)  # for funnels
_MANY = Sampling(draws=1500, dense=False)  # for many latents
_MANY_WIDE = Sampling(draws=1500, dense=False, accept=0.95)


def _as(model: Any, to_ours: Any = None, **options: Any) -> Sampling:
    """NUTS samples another form of the model."""
    return Sampling(draws=1500, sampled=(model, to_ours or dict), **options)


_SCHOOLS = _as(h.schools_noncentred, h.from_z("mu", "tau", "z", "theta"), accept=0.95)
_RADON = _as(h.radon_noncentred, h.from_z("mu", "tau", "z", "alpha"), accept=0.9, dense=False)
_MEAN_SIGMA = "the mean and sigma"
_JOINT = "do not add up|does not follow the rows|on a single row|ties them together"  # messages about joint rows
_PREDICTOR = "the linear predictor"
_ONE_ROW = {"rows": ()}  # all data are one row

REGRESSION = (
    Case("kidiq", GELMAN_HILL, r.kidiq, r.kidiq_data, 2, _MEAN_SIGMA, common=True),
    _refused("kidiq, flat priors", POSTERIORDB, r.kidiq_flat, lambda: r.kidiq_data(), IMPROPER, "improper"),
    Case("height and weight (m4.3)", MCELREATH, r.howell, r.howell_data, 3, "a, b on its log scale, sigma"),
    Case("divorce (m5.3)", MCELREATH, r.divorce, r.divorce_data, 2, _MEAN_SIGMA, common=True),
    Case("ruggedness, interaction (m8.3)", MCELREATH, r.ruggedness, r.ruggedness_data, 2, _MEAN_SIGMA),
    Case("tulips (m8.5)", MCELREATH, r.tulips, r.tulips_data, 2, _MEAN_SIGMA),
    Case("mesquite, logs", GELMAN_HILL, r.mesquite, r.mesquite_data, 2, _MEAN_SIGMA),
    Case("earnings, interaction", GELMAN_HILL, r.earnings, r.earnings_data, 2, _MEAN_SIGMA, common=True),
    Case("nes, party", POSTERIORDB, r.nes_party, r.nes_party_data, 2, _MEAN_SIGMA),
    Case("sblri", POSTERIORDB, r.sparse_blr, r.sparse_blr_data, 2, _MEAN_SIGMA),
    Case("robust, nu unknown", STAN, r.robust, r.robust_data, 3, "the mean, sigma and nu", common=True),
    Case("ridge, diabetes", BDA, r.ridge, r.diabetes_data, 2, _MEAN_SIGMA),
    Case("lasso, diabetes", "Park & Casella", r.lasso, r.diabetes_data, 2, _MEAN_SIGMA),
    Case(
        "horseshoe",
        NUMPYRO,
        r.horseshoe,
        r.horseshoe_data,
        41,
        "every coefficient is a product: 20 sums log lambda + log tau, 20 betas; sigma",
        sampling=_MANY_WIDE,
    ),
    Case("splines, cherry blossoms (m4.7)", MCELREATH, r.splines, r.splines_data, 2, _MEAN_SIGMA),
    Case("engel, scale with income", BDA, r.heteroscedastic, r.engel_data, 2, "the mean and the log scale"),
    Case("engel, quantile regression", "Yu & Moyeed", r.quantile, r.engel_data, 2, _MEAN_SIGMA),
    Case("dugongs", BUGS, r.dugongs, r.dugongs_data, 4, "alpha, beta, lambda, tau: alpha joins nothing linear in them"),
    Case("cylinder (m16.1)", MCELREATH, r.cylinder, r.cylinder_data, 3, "log k, p, sigma"),
    Case(
        "one-compartment PK",
        STAN,
        r.pharmacokinetics,
        r.pharmacokinetics_data,
        4,
        "ka, ke, log V, sigma",
        sampling=Sampling(draws=1500, init=init_to_median),  # ka and ke exchanged are a mode of no weight
    ),
    Case("Gompertz growth", STAN, r.gompertz, r.gompertz_data, 4, "a, b, c, sigma"),
    Case("wells, interaction", GELMAN_HILL, r.wells, r.wells_data, 1, _PREDICTOR, common=True),
    Case("nes, logit", POSTERIORDB, r.nes_logit, r.nes_logit_data, 1, _PREDICTOR, common=True),
    Case("probit", BDA, r.probit_cdf, r.probit_data, 1, _PREDICTOR, common=True),
    Case("beetles, logit", BUGS, r.beetles, r.beetles_data, 1, _PREDICTOR),
    Case("beetles, cloglog", BUGS, r.beetles_cloglog, r.beetles_data, 1, _PREDICTOR),
    Case("bioassay", BDA, r.bioassay, r.bioassay_data, 1, _PREDICTOR),
    _refused("ordinal, flat cutpoints", NUMPYRO, r.ordinal_improper, r.ordinal_data, IMPROPER, "improper"),
    Case(
        "ordinal, Dirichlet cutpoints",
        NUMPYRO,
        r.ordinal_dirichlet,
        r.ordinal_data,
        3,
        "the predictor and two cutpoints",
    ),
    Case(
        "trolley (m12.5)",
        MCELREATH,
        r.trolley,
        r.trolley_data,
        6,
        "the predictor less the first cutpoint, and the logs of five gaps",
        sampling=Sampling(draws=1000),
        common=True,
    ),
    Case(
        "ordered probit",
        STAN,
        r.ordered_probit,
        r.ordered_probit_data,
        3,
        "the predictor less the first cutpoint, and the logs of two gaps",
    ),
    Case("softmax, iris", STAN, r.softmax, r.iris_data, 3, "three logits", common=True),
    Case("careers (m11.13)", MCELREATH, r.careers, r.careers_data, 3, "two scores, and b as their slope"),
    Case("multinomial counts", STAN, r.multinomial, r.multinomial_data, 3, "three logits"),
    Case("GLM_Poisson", KERY, r.glm_poisson, r.peregrine_data, 4, "Uniform priors: four numbers behind a sigmoid"),
    Case("GLMM_Poisson", KERY, r.glmm_poisson, r.peregrine_mixed_data, 2, "the predictor and sigma"),
    Case("roaches, Poisson", GELMAN_HILL, r.roaches, r.roaches_data, 1, _PREDICTOR, common=True),
    Case(
        "roaches, negative binomial",
        GELMAN_HILL,
        r.roaches_negative_binomial,
        r.roaches_overdispersed_data,
        2,
        "the predictor and phi",
        common=True,
    ),
    Case("roaches, hurdle", GELMAN_HILL, r.roaches_hurdle, r.roaches_overdispersed_data, 2, "two predictors"),
    Case("fishing, zero-inflated", NUMPYRO, r.zip_fishing, r.zip_fishing_data, 2, "two predictors", common=True),
    Case("monks, zero-inflated (m12.3)", MCELREATH, r.zip_monks, r.zip_monks_data, 2, "two predictors"),
    Case("oceanic tools (m11.10)", MCELREATH, r.oceanic_tools, r.kline_data, 1, _PREDICTOR),
    Case(
        "oceanic tools, scientific (m11.11)",
        MCELREATH,
        r.oceanic_tools_scientific,
        r.kline_scientific_data,
        2,
        "a − log g, and log b",
    ),
    Case("panda nuts (m16.4)", MCELREATH, r.panda_nuts, r.panda_nuts_data, 3, "log phi, log k, log theta"),
    Case("beta regression", "betareg", r.beta_regression, r.beta_regression_data, 2, "the predictor and phi"),
    Case("gamma regression", STAN, r.gamma_regression, r.gamma_regression_data, 2, "the predictor and the shape"),
    Case("truncated regression", NUMPYRO, r.truncated, r.truncated_data, 2, _MEAN_SIGMA),
    Case("Tobit", STAN, r.tobit, r.tobit_data, 2, _MEAN_SIGMA),
    Case("von Mises regression", "Fisher & Lee", r.von_mises_normal, r.von_mises_data, 3, "mu, b, kappa"),
    Case("von Mises regression, circular mu", "Fisher & Lee", r.von_mises, r.von_mises_data, 3, "mu, b, kappa"),
    Case("cats, censored (m11.14)", MCELREATH, r.exponential_censored, r.cats_data, 1, "the log rate of its group"),
    Case(
        "cats, two plates",
        MCELREATH,
        r.exponential_two_plates,
        r.cats_split_data,
        1,
        "the log rate of its group; the censored cats are a term of the prior",
    ),
    Case("mice, Weibull", BUGS, r.weibull_censored, r.mice_data, 2, "beta of its group and r"),
    Case(
        "divorce, measured (m15.1), no plate",
        MCELREATH,
        r.measurement_error_known,
        r.divorce_measured_data,
        2,
        "the mean and sigma",
    ),
    Case(
        "divorce, measured (m15.1)",
        MCELREATH,
        r.measurement_error_known_plate,
        r.divorce_measured_data,
        2,
        "the mean and sigma",
    ),
    Case(
        "divorce, both measured (m15.2)",
        MCELREATH,
        r.measurement_error_both,
        r.divorce_both_measured_data,
        3,
        "bM, the rest of the mean, sigma",
    ),
    _refused("milk, missing values (m15.5)", MCELREATH, r.missing_values, r.milk_data, COUNTED, "(?i)value|number"),
    Case("losscurve_sislob", POSTERIORDB, r.losscurve, r.losscurve_data, 4, "omega, theta, LR, loss_sd"),
    Case("two proportions", NUMPYRO, r.proportions, r.proportions_data, 1, "the logit of its group's rate"),
)

HIERARCHIES = (
    Case(
        "eight schools, README",
        NUMPYRO,
        h.schools_readme,
        h.schools_readme_data,
        2,
        "mu and tau",
        sampling=_WIDE,
    ),
    Case(
        "eight schools, centred",
        BDA,
        h.schools_centred,
        h.schools_data,
        2,
        "mu and tau",
        sampling=_as(h.schools_noncentred, accept=0.95),
        common=True,
    ),
    Case(
        "eight schools, non-centred",
        BDA,
        h.schools_noncentred,
        h.schools_data,
        2,
        "mu and tau",
        sampling=_WIDE,
        common=True,
    ),
    Case("eight schools, LocScaleReparam", NUMPYRO, h.schools_reparam, h.schools_data, 2, "mu and tau", sampling=_WIDE),
    Case(
        "eight schools, TransformReparam",
        NUMPYRO,
        h.schools_transform,
        h.schools_readme_data,
        2,
        "mu and tau",
        sampling=_WIDE,
    ),
    Case("radon, pooled", GELMAN_HILL, h.radon_pooled, h.radon_pooled_data, 2, _MEAN_SIGMA),
    Case("radon, unpooled", GELMAN_HILL, h.radon_unpooled, h.radon_data, 2, _MEAN_SIGMA, sampling=_MANY),
    Case("radon, centred", GELMAN_HILL, h.radon_centred, h.radon_data, 2, _MEAN_SIGMA, sampling=_RADON, common=True),
    Case(
        "radon, non-centred",
        GELMAN_HILL,
        h.radon_noncentred,
        h.radon_data,
        4,
        "mu + beta floor, tau, z of its county, sigma",
        sampling=_MANY_WIDE,
        common=True,
    ),
    Case("radon, county slopes", GELMAN_HILL, h.radon_slopes, h.radon_slopes_data, 2, _MEAN_SIGMA, sampling=_MANY_WIDE),
    Case(
        "radon, uranium",
        GELMAN_HILL,
        h.radon_group_predictor,
        h.radon_group_data,
        2,
        _MEAN_SIGMA,
        sampling=_MANY_WIDE,
    ),
    Case(
        "OSIC, np.unique",
        NUMPYRO,
        h.osic_unique,
        h.osic_unique_data,
        2,
        _MEAN_SIGMA,
        sampling=Sampling(draws=1000, dense=False, accept=0.9),
    ),
    Case("OSIC", NUMPYRO, h.osic, h.osic_data, 2, _MEAN_SIGMA, sampling=Sampling(draws=1000, dense=False, accept=0.9)),
    Case("rats", BUGS, h.rats, h.rats_data, 2, _MEAN_SIGMA, sampling=_MANY, common=True),
    Case(
        "rats, a row for each rat",
        BUGS,
        h.rats_wide,
        h.rats_wide_data,
        5,
        "four hyperparameters and sigma",
        sampling=_MANY,
    ),
    Case("sleepstudy", "lme4", h.sleepstudy, h.sleepstudy_data, 2, _MEAN_SIGMA, sampling=_MANY_WIDE),
    Case("cafes (m14.1)", MCELREATH, h.cafes, h.cafes_data, 2, _MEAN_SIGMA, sampling=_MANY_WIDE),
    Case("pilots", GELMAN_HILL, h.pilots, h.pilots_data, 2, _MEAN_SIGMA, sampling=_WIDE),
    Case("orange trees", "Pinheiro & Bates", h.orange_trees, h.orange_trees_data, 4, "beta[0] + u, beta[1:], sigma"),
    Case("baseball, fully pooled", NUMPYRO, h.baseball_pooled, h.baseball_data, 1, "the logit of phi"),
    _refused("baseball, not pooled", NUMPYRO, h.baseball_not_pooled, h.baseball_data, UNSHARED, "drawn for every row"),
    Case(
        "baseball, partially pooled",
        NUMPYRO,
        h.baseball_partially_pooled,
        h.baseball_data,
        2,
        "m and kappa",
        sampling=_WIDE,
    ),
    Case("baseball, logit", NUMPYRO, h.baseball_logit, h.baseball_data, 2, "loc and scale", sampling=_WIDE),
    Case("baseball, beta-binomial", STAN, h.baseball_beta_binomial, h.baseball_data, 2, "m and kappa", sampling=_WIDE),
    Case("rat tumours", BDA, h.rat_tumours, h.rat_tumours_data, 2, "mean and size", sampling=_MANY),
    Case("seeds, gamma precision", BUGS, h.seeds, h.seeds_data, 2, "the predictor and tau", sampling=_WIDE),
    Case(
        "seeds",
        POSTERIORDB,
        h.seeds_half_normal,
        h.seeds_data,
        2,
        "the predictor and sigma",
        sampling=_WIDE,
    ),
    Case(
        "surgical",
        BUGS,
        h.surgical,
        h.surgical_data,
        2,
        "mu and sigmasq",
        sampling=_WIDE,
    ),
    Case("blocker", BUGS, h.blocker, h.blocker_data, 2, "d and tau", sampling=_MANY_WIDE),
    Case("meta-analysis", BDA, h.meta_analysis, h.meta_analysis_data, 2, "theta and tau", sampling=_WIDE),
    Case("pumps", BUGS, h.pumps, h.pumps_data, 2, "alpha and beta"),
    Case(
        "UCB admissions, np.unique",
        NUMPYRO,
        h.ucbadmit,
        h.ucbadmit_data,
        6,
        "the sum of v_mu, and two z, two sigmas, a correlation",
        sampling=_WIDE,
    ),
    Case(
        "UCB admissions, LKJ",
        NUMPYRO,
        h.ucbadmit_six,
        h.ucbadmit_data,
        6,
        "the sum of v_mu, and two z, two sigmas, a correlation",
        sampling=_WIDE,
    ),
    Case(
        "UCB admissions, intercepts",
        MCELREATH,
        h.ucbadmit_intercepts,
        h.ucbadmit_data,
        1,
        _PREDICTOR,
        sampling=_WIDE,
        common=True,
    ),
    Case(
        "UCB admissions, beta-binomial (m12.1)",
        MCELREATH,
        h.ucbadmit_beta_binomial,
        h.ucbadmit_beta_binomial_data,
        2,
        "the logit of its group, phi",
    ),
    Case("chimpanzees (m11.4)", MCELREATH, h.chimpanzees, h.chimpanzees_data, 1, _PREDICTOR),
    Case(
        "chimpanzees, multilevel (m13.4)",
        MCELREATH,
        h.chimpanzees_multilevel,
        h.chimpanzees_multilevel_data,
        1,
        _PREDICTOR,
        sampling=_WIDE,
    ),
    Case(
        "chimpanzees, LKJ (m14.3)",
        MCELREATH,
        h.chimpanzees_lkj,
        h.chimpanzees_lkj_data,
        29,
        "the last treatment reads four z, sigma and a row of a correlation matrix, for actor and block",
        sampling=_MANY_WIDE,
    ),
    Case("reed frogs (m13.2)", MCELREATH, h.reed_frogs, h.reed_frogs_data, 1, _PREDICTOR, sampling=_MANY),
    Case(
        "reed frogs, local effects",
        MCELREATH,
        h.reed_frogs_local,
        h.reed_frogs_local_data,
        2,
        "a_bar and sigma",
        sampling=_MANY,
    ),
    Case("bangladesh", MCELREATH, h.bangladesh, h.bangladesh_data, 1, _PREDICTOR, sampling=_MANY),
    Case(
        "bangladesh, slopes with LKJ",
        MCELREATH,
        h.bangladesh_slopes,
        h.bangladesh_slopes_data,
        1,
        _PREDICTOR,
        sampling=Sampling(draws=1000, dense=False, accept=0.95),
    ),
    _refused(
        "oceanic tools, GP (m14.8)",
        MCELREATH,
        h.kline_gp,
        h.kline_gp_data,
        AMBIGUOUS,
        "say which arguments carry rows",
    ),
    Case(
        "oceanic tools, GP (m14.8), rows named",
        MCELREATH,
        h.kline_gp,
        h.kline_gp_data,
        2,
        "log a − log g + k, and log b",
        options={"rows": ("P", "society", "T")},
        sampling=_WIDE,
    ),
    Case(
        "epil",
        BUGS,
        h.epil,
        h.epil_data,
        2,
        "the predictor and sigma_b",
        sampling=Sampling(draws=1000, dense=False, accept=0.9),
    ),
    Case("dogs", GELMAN_HILL, h.dogs, h.dogs_data, 1, _PREDICTOR),
    Case("1PL", STAN, h.rasch, h.rasch_data, 1, _PREDICTOR, sampling=_MANY, common=True),
    Case(
        "irt_2pl",
        POSTERIORDB,
        h.two_parameter,
        h.two_parameter_data,
        2,
        "log a, theta − b",
        sampling=_MANY,
        common=True,
    ),
    Case("3PL", STAN, h.three_parameter, h.three_parameter_data, 3, "log a, theta − b, logit c", sampling=_MANY),
    Case("Bradley–Terry", STAN, h.bradley_terry, h.bradley_terry_data, 1, _PREDICTOR, sampling=_MANY),
)

LATENTS = (
    Case("low_dim_gauss_mix", POSTERIORDB, m.mixture_two, m.mixture_two_data, 5, "two means, two sigmas, theta"),
    _modes("mixture, assignments", NUMPYRO, m.mixture_assigned, m.mixture_assigned_data, 4, "two locs, scale, weights"),
    Case("mixture, K = 3", STAN, m.mixture_three, m.mixture_three_data, 8, "three means, three sigmas, two weights"),
    Case("regression with outliers", "Hogg et al.", m.regression_outliers, m.outliers_data, 3, "the mean, bad, spread"),
    Case(
        "Dawid–Skene",
        NUMPYRO,
        m.dawid_skene,
        m.dawid_skene_data,
        63,
        "a row reads all five confusion matrices (60 numbers) and pi",
        sampling=_as(m.dawid_skene_summed, dense=False),
    ),
    Case(
        "occupancy",
        KERY,
        m.occupancy,
        m.occupancy_data,
        2,
        "two predictors",
        sampling=_as(m.occupancy_summed),
    ),
    _refused("N-mixture", KERY, m.n_mixture, m.n_mixture_data, INFINITE, "(?i)finite|support|values"),
    Case("N-mixture, summed", KERY, m.n_mixture_summed, m.n_mixture_data, 2, "lam and p"),
    Case(
        "M0, data augmentation",
        KERY,
        m.capture_m0,
        m.capture_m0_data,
        2,
        "omega and p",
        sampling=_as(m.capture_m0_summed),
    ),
    Case("CJS, dippers", KERY, m.cjs, m.dippers_data, 2, "phi and p"),
    Case(
        "factor analysis",
        STAN,
        m.factor_analysis,
        m.factor_analysis_data,
        12,
        "four means, loadings and sigmas",
        sampling=_MANY,
    ),
    _modes("PPCA", NUMPYRO, m.ppca, m.ppca_data, 9, "eight weights and sigma"),
    _modes("PPCA, z summed out", NUMPYRO, m.ppca_marginal, m.ppca_data, 9, "eight weights, sigma"),
    _modes(
        "matrix factorisation",
        "Salakhutdinov & Mnih",
        m.matrix_factorisation,
        m.matrix_factorisation_data,
        5,
        "two factors of the user and two of the film, sigma",
    ),
    _modes("LDA", STAN, m.lda, m.lda_data, 15, "a word reads its share of two topics (14 numbers) and its document's"),
    _modes(
        "two-layer network", NUMPYRO, m.bayesian_network, m.network_data, 36, "5 hidden values, 25 + 5 weights, sigma"
    ),
    _refused("Gaussian copula", NUMPYRO, m.gaussian_copula, m.gaussian_copula_data, NO_DERIVATIVE, "no derivative"),
    Case(
        "covariance with LKJ", STAN, m.bivariate_normal, m.bivariate_normal_data, 9, "three means, sigmas, correlations"
    ),
    Case("monotonic predictor", "Bürkner & Charpentier", m.monotonic, m.monotonic_data, 6, "a, b, three shares, sigma"),
    Case("Dirichlet regression", STAN, m.dirichlet_regression, m.dirichlet_regression_data, 3, "three predictors"),
)

SERIES = (
    Case("AR(1), lagged column", STAN, s.ar_one_columns, s.ar_one_columns_data, 2, _MEAN_SIGMA),
    _refused("AR(1)", STAN, s.ar_one, s.ar_one_data, DEPENDENT, _JOINT),
    Case("AR(1), one row", STAN, s.ar_one, s.ar_one_data, 2, _MEAN_SIGMA, options=_ONE_ROW),
    _refused("arK", POSTERIORDB, s.ar_k, s.ar_one_data, DEPENDENT, _JOINT),
    Case("arK, one row", POSTERIORDB, s.ar_k, s.ar_one_data, 2, _MEAN_SIGMA, options=_ONE_ROW),
    _refused("AR(2), scan", NUMPYRO, s.ar_two_scan, s.ar_one_data, DEPENDENT, _JOINT),
    _refused("ARMA(1, 1)", POSTERIORDB, s.arma, s.ar_one_data, DEPENDENT, _JOINT),
    _refused("GARCH(1, 1)", POSTERIORDB, s.garch, s.ar_one_data, DEPENDENT, _JOINT),
    Case(
        "GARCH(1, 1), one row",
        POSTERIORDB,
        s.garch,
        s.ar_one_data,
        4,
        "mu, alpha0, alpha1, share",
        options=_ONE_ROW,
        sampling=_WIDE,
    ),
    _refused("stochastic volatility", NUMPYRO, s.stochastic_volatility, s.returns_data, GROWS, _JOINT),
    _refused("local level, Nile", "Durbin & Koopman", s.local_level, s.nile_data, GROWS, _JOINT),
    Case(
        "local level, indexed",
        "Durbin & Koopman",
        s.local_level_indexed,
        s.nile_indexed_data,
        2,
        "the level of its year, sigma",
        sampling=_as(s.local_level_noncentred, s.level_of_steps, dense=False, accept=0.9),
    ),
    Case(
        "time-varying intercept",
        NUMPYRO,
        s.time_varying_intercept,
        s.time_varying_data,
        4,
        "start and slope, scale, the sum of the steps so far, sigma",
        sampling=_MANY,
    ),
    _refused("Holt–Winters", NUMPYRO, s.holt_winters, s.ar_one_data, DEPENDENT, _JOINT),
    Case(
        "Holt–Winters, one row",
        NUMPYRO,
        s.holt_winters,
        s.ar_one_data,
        5,
        "both smoothings, level_0, slope_0, noise",
        options=_ONE_ROW,
    ),
    _refused("hierarchical forecast", NUMPYRO, s.hierarchical_forecast, s.forecast_data, DEPENDENT, _JOINT),
    _refused("hmm_example", POSTERIORDB, s.hmm, s.hmm_data, DEPENDENT, _JOINT),
    Case(
        "hmm_example, one row",
        POSTERIORDB,
        s.hmm,
        s.hmm_data,
        4,
        "two rows of theta, two means",
        options=_ONE_ROW,
        sampling=Sampling(draws=1500, init=init_to_median),  # the states exchanged are a mode of little weight
    ),
    Case(
        "coal mining, discrete year",
        "PyMC",
        s.coal_discrete,
        s.coal_data,
        3,
        "the year, two log rates",
        sampling=_as(s.coal_summed, s.year_of_rates),
    ),
    Case(
        "coal mining, continuous year",
        "PyMC",
        s.coal_continuous,
        s.coal_data,
        3,
        "the year, two log rates",
        sampling=_as(s.coal_summed, s.switch_of_rates),
    ),
    _refused("GP regression", NUMPYRO, s.gp_regression, s.gp_data, DEPENDENT, _JOINT),
    Case("GP regression, one row", NUMPYRO, s.gp_regression, s.gp_data, 3, "var, noise, length", options=_ONE_ROW),
    _refused("gp_pois_regr", POSTERIORDB, s.gp_poisson, s.gp_poisson_data, GROWS, _JOINT),
    Case(
        "Hilbert space GP",
        NUMPYRO,
        s.hilbert_gp,
        s.hilbert_gp_data,
        11,
        "eight weights, alpha, length, sigma",
        sampling=_WIDE,
    ),
    _refused("Lotka–Volterra", NUMPYRO, s.lotka_volterra, s.lynx_data, DEPENDENT, _JOINT),
    Case("Lotka–Volterra, rates", STAN, s.lynx_rates, s.lynx_rates_data, 3, "alpha, beta, sigma: both behind an exp"),
    _refused("SIR, boarding school", STAN, s.sir, s.boarding_school_data, DEPENDENT, _JOINT),
    Case(
        "SIR, boarding school, one row",
        STAN,
        s.sir,
        s.boarding_school_data,
        3,
        "beta, gamma, phi_inv",
        options=_ONE_ROW,
        sampling=Sampling(init=init_to_median),  # a random start may make the Gamma's rate overflow
    ),
    Case(
        "Michaelis–Menten PK by odeint",
        POSTERIORDB,
        s.michaelis_menten,
        s.michaelis_menten_data,
        4,
        "ka, vm, km, sigma",
        sampling=Sampling(draws=500),
    ),
)

CASES = (*REGRESSION, *HIERARCHIES, *LATENTS, *SERIES)
