"""Numbers that say how far a run is from a reference: errors of moments, divergences, distances of marginals."""

from typing import Any, NamedTuple

import numpy as np

from adfpp.judge.fits import Fit, same_coordinates
from adfpp.model import Program
from adfpp.model.discrete import levels

_LEVELS = (np.arange(400) + 0.5) / 400  # quantiles from which the distance between marginals is computed
# Draws from a Gaussian have a Wasserstein distance to it of 1.3 standard errors of their mean, on average.
_W1_NOISE = 1.3


class ParameterErrors(NamedTuple):
    """Errors ``(P,)`` of all scalar parameters, in the reference's sds; for discrete ones in those of a fair coin.

    Attributes:
        error: The run's mean minus the reference's.
        mcse: The reference's Monte-Carlo standard error of it.
        sd_ratio: Sd of the run over that of the reference; NaN where the parameter is discrete.
        sd_ratio_mcse: The reference's Monte-Carlo standard error of it.
        w1: Wasserstein-1 distance of the marginals.
    """

    error: np.ndarray
    mcse: np.ndarray
    sd_ratio: np.ndarray
    sd_ratio_mcse: np.ndarray
    w1: np.ndarray


class Distance(NamedTuple):
    """The distance of a run from the reference; the fields are columns of ``Comparison.overview``."""

    error_max: float
    error_max_mcse: float
    error_rms: float
    error_rms_mcse: float
    sd_ratio_min: float
    sd_ratio_max: float
    sd_ratio_mcse: float
    kl: float
    kl_mcse: float
    w1_max: float
    w1_max_mcse: float


def parameter_errors(fit: Fit, truth: Fit) -> ParameterErrors:
    """Errors of each scalar parameter of a run."""
    with np.errstate(divide="ignore", invalid="ignore"):  # all draws may be equal
        ratio = fit.sd / truth.sd
        distance = np.abs(fit.quantiles(_LEVELS) - truth.quantiles(_LEVELS)).mean(0) / truth.sd
        error = (fit.mean - truth.mean) / truth.sd
        noise, ratio_noise = np.array(truth.mcse), ratio * truth.sd_mcse
    for i in np.flatnonzero(truth.discrete).tolist():
        # twice the total variation distance
        distance[i] = np.abs(np.exp(fit.log_probabilities[i]) - np.exp(truth.log_probabilities[i])).sum()
        error[i] = np.copysign(distance[i], fit.mean[i] - truth.mean[i])
        noise[i] = truth.probability_se[i].sum()
        ratio[i] = ratio_noise[i] = np.nan
    return ParameterErrors(error, noise, ratio, ratio_noise, distance)


def distance(errors: ParameterErrors, fit: Fit, truth: Fit) -> Distance:
    """The largest of a run's errors, and the divergence of the whole posterior."""
    worst = worst_parameter(errors)
    ratios = errors.sd_ratio
    smallest = int(np.argmin(np.where(np.isnan(ratios), np.inf, ratios)))
    largest = int(np.argmax(np.where(np.isnan(ratios), -np.inf, ratios)))
    furthest = int(np.argmax(errors.w1))
    kl, kl_noise = divergence(truth, fit)
    return Distance(
        error_max=float(abs(errors.error[worst])),
        error_max_mcse=float(errors.mcse[worst]),
        error_rms=float(np.sqrt(np.mean(errors.error**2))),
        error_rms_mcse=float(np.sqrt(np.mean(errors.mcse**2))),
        sd_ratio_min=float(ratios[smallest]),
        sd_ratio_max=float(ratios[largest]),
        sd_ratio_mcse=float(max(errors.sd_ratio_mcse[[smallest, largest]])),
        kl=kl,
        kl_mcse=kl_noise,
        w1_max=float(errors.w1[furthest]),
        w1_max_mcse=float(_W1_NOISE * errors.mcse[furthest]),
    )


def worst_parameter(errors: ParameterErrors) -> int:
    """Number of the parameter with the largest error of its mean; one that is not finite comes first."""
    return int(np.argmax(np.abs(errors.error)))


# ------------------------------------------------------------------------------------------------ divergences


def divergence(truth: Fit, fit: Fit) -> tuple[float, float]:
    """KL(reference || run) in nats, and what the reference's sampling error adds to it.

    This is the divergence of Gaussians with the moments of both, in the run's coordinates, plus that of the marginals
    of discrete latents. If the reference enumerates, it is the exact divergence of the joint distributions.
    """
    if fit.is_point:
        return np.inf, 0.0
    if truth.table is not None:
        return _enumerated_divergence(truth, fit), 0.0
    total, noise = _gaussian_divergence(truth, fit) if not truth.discrete.all() else (0.0, 0.0)
    for i in np.flatnonzero(truth.discrete).tolist():
        marginal = _finite_divergence(truth.log_probabilities[i], fit.log_probabilities[i])
        # draws alone do not tell how improbable a value is that was never drawn
        total += marginal if fit.posterior is not None or np.isfinite(marginal) else np.nan
        if truth.probability_se[i].sum() > 0:
            noise += 0.5 * (len(truth.log_probabilities[i]) - 1) / float(np.min(truth.ess))
    return total, noise


def _finite_divergence(log_p: np.ndarray, log_q: np.ndarray) -> float:
    seen = log_p > -np.inf
    return max(0.0, float(np.sum(np.exp(log_p[seen]) * (log_p[seen] - log_q[seen]))))


def _enumerated_divergence(truth: Fit, fit: Fit) -> float:
    """The exact divergence of the joint distributions; NaN for a run that gives draws alone."""
    assert truth.table is not None
    if fit.table is not None:
        return _finite_divergence(truth.table.log_weights, fit.table.log_weights)
    if fit.posterior is None:
        return np.nan
    log_q: Any = fit.posterior.distribution.log_prob(truth.table.theta)
    return _finite_divergence(truth.table.log_weights, np.asarray(log_q, float))


def _gaussian_divergence(truth: Fit, fit: Fit) -> tuple[float, float]:
    """The divergence of Gaussians with the moments of both, in the run's continuous coordinates."""
    if same_coordinates(truth.program, fit.program):
        mean, covariance = truth.unconstrained
    else:
        theta = truth.in_space_of(fit.program)
        mean, covariance = theta.mean(0), np.atleast_2d(np.cov(theta.T))
    other_mean, other = fit.unconstrained
    keep = _free(fit.program)
    mean, other_mean, covariance, other = mean[keep], other_mean[keep], covariance[keep][:, keep], other[keep][:, keep]
    size = len(mean)
    effective = np.min(truth.ess)
    # each of the mean's and the covariance's numbers adds 1 / (2 ESS) on average
    noise = 0.0 if np.isinf(effective) else (size + 0.5 * size * (size + 1)) / (2.0 * effective)
    if not (_is_definite(covariance) and _is_definite(other)):
        return np.nan, noise  # not finite, or from fewer draws than numbers
    inverse = np.linalg.inv(other)
    gap = other_mean - mean
    logs = np.linalg.slogdet(other)[1] - np.linalg.slogdet(covariance)[1]
    return float(0.5 * (np.trace(inverse @ covariance) + gap @ inverse @ gap - size + logs)), float(noise)


def _free(program: Program) -> np.ndarray:
    """Places of θ's free continuous coordinates: all except the last one of each simplex in its native space."""
    out = np.array([values is None for values in levels(program)])
    for latent in program.latents:
        if latent.native is not None and latent.native.dim > 1:
            out[latent.where].reshape(-1, latent.native.dim)[:, -1] = False
    return np.flatnonzero(out)


def _is_definite(covariance: np.ndarray) -> bool:
    """Whether a covariance has full rank; the units of the latents do not matter."""
    sd = np.sqrt(np.diag(covariance))
    if not (np.isfinite(covariance).all() and (sd > 0.0).all()):
        return False
    return int(np.linalg.matrix_rank(covariance / np.outer(sd, sd))) == len(sd)
