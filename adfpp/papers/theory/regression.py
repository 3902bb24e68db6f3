"""Exact learning curves of online regression, for learners whose update is affine in their coefficients.

Rows are x uniform on a domain and y = target(x) + noise. A learner has coefficients θ of some functions φ, and a row
moves them to T θ + g y, where T and g depend only on x and on the number of the row. Then the mean and the second
moment of θ over all streams obey linear recursions, whose averages over x are quadratures, so nothing is simulated. The
incremental risk functional and a normalised gradient are such learners. Least squares is not, because its gain depends
on all earlier inputs.

The computation uses coordinates in which the functions are orthonormal, because powers of x would lose their digits.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from adfpp.papers.theory.channel import Floats

__all__ = ["Course", "irma_course", "least_error", "normalised_gradient_course"]

NODES = 400  # Gauss-Legendre nodes, enough for products of the first ten powers, and for bumps of width 0.5

Functions = Callable[[Floats], Floats]


class Course(NamedTuple):
    """Means of the errors over all streams.

    Attributes:
        loss: ``(rows,)`` squared error of the prediction of each noisy value, before the row is learned.
        error: ``(rows,)`` mean squared distance to the target over the domain, after each row.
    """

    loss: Floats
    error: Floats


class Nodes(NamedTuple):
    """A quadrature on the domain, and the functions there.

    Attributes:
        weights: ``(n,)`` the weights of the nodes, with sum 1.
        white: ``(n, M)`` ψ = R⁻ᵀφ, for which ∫ψψᵀ dx is the identity.
        root: ``(M, M)`` R.
        target: ``(n,)`` the values of the target.
    """

    weights: Floats
    white: Floats
    root: Floats
    target: Floats


def irma_course(
    functions: Functions,
    target: Functions,
    rows: int,
    noise: float,
    domain: tuple[float, float] = (0.0, 3.0),
    lam: float = 0.1,
    growth: float = 1.05,
    gram_domain: tuple[float, float] | None = None,
) -> Course:
    """The incremental risk functional: θ' = θ + A⁻¹φ (y − θ·φ)/(λ + φ·A⁻¹φ) from θ = 0, its equations (8) and (9).

    Args:
        functions: φ, from ``(n,)`` to ``(n, M)``.
        target: The function to learn, from ``(n,)`` to ``(n,)``.
        rows: Number of rows.
        noise: Standard deviation of the noise on y.
        domain: Domain of x.
        lam: λ of the first row.
        growth: Factor of λ after every row.
        gram_domain: Domain of the Gram matrix A; None for the domain of x.

    Returns:
        The course.
    """
    nodes = on_nodes(functions, target, domain)
    at, weights = quadrature(gram_domain or domain)
    there = np.linalg.solve(nodes.root.T, functions(at).T).T
    gram = (there * weights[:, None]).T @ there
    pull = np.linalg.solve(gram, nodes.white.T).T
    leverage = np.sum(pull * nodes.white, 1)
    ones = np.ones(len(leverage))

    def move(count: int) -> tuple[Floats, Floats]:
        return ones, pull / (lam * growth ** (count - 1) + leverage)[:, None]

    return course(nodes, noise, rows, move)


def normalised_gradient_course(
    functions: Functions,
    target: Functions,
    rows: int,
    noise: float,
    domain: tuple[float, float] = (0.0, 3.0),
    rate: float = 1.0,
    ridge: float = 0.05,
) -> Course:
    """The normalised gradient with Tikhonov's ridge, θ' = θ + rate ((y − θ·φ)φ − ridge θ)/(|φ|² + ridge) from θ = 0.

    Args:
        functions: φ, from ``(n,)`` to ``(n, M)``.
        target: The function to learn, from ``(n,)`` to ``(n,)``.
        rows: Number of rows.
        noise: Standard deviation of the noise on y.
        domain: Domain of x.
        rate: Step length; the algorithm is stable for rates in (0, 2).
        ridge: Factor of the penalty, ≥ 0.

    Returns:
        The course.
    """
    nodes = on_nodes(functions, target, domain)
    plain = nodes.white @ nodes.root  # φ
    total = np.sum(plain**2, 1) + ridge
    shrinkage, gain = 1.0 - rate * ridge / total, rate * (plain @ nodes.root.T) / total[:, None]
    return course(nodes, noise, rows, lambda count: (shrinkage, gain))


def least_error(functions: Functions, target: Functions, domain: tuple[float, float] = (0.0, 3.0)) -> float:
    """Mean squared distance, over the domain, between the target and its nearest combination of the functions."""
    nodes = on_nodes(functions, target, domain)
    length = domain[1] - domain[0]
    nearest = (nodes.white * nodes.weights[:, None]).T @ nodes.target * length
    return float(np.sum(nodes.weights * (nodes.target - nodes.white @ nearest) ** 2))


def course(nodes: Nodes, noise: float, rows: int, move: Callable[[int], tuple[Floats, Floats]]) -> Course:
    """The recursion of mean and second moment of u = Rθ under u' = shrinkage u + gain (y − ψ·u).

    Args:
        nodes: The quadrature over x.
        noise: Standard deviation of the noise on y.
        rows: Number of rows.
        move: From the number of a row, from 1, to shrinkage ``(n,)`` and gain ``(n, M)``.
    """
    weights, white, target = nodes.weights, nodes.white, nodes.target
    size = white.shape[1]
    mean, second = np.zeros(size), np.zeros((size, size))

    def distance() -> float:
        square = np.sum((white @ second) * white, 1)
        return float(np.sum(weights * (square - 2.0 * target * (white @ mean) + target**2)))

    loss, error = np.empty(rows), np.empty(rows)
    for t in range(rows):
        loss[t] = distance() + noise**2
        shrinkage, gain = move(t + 1)
        linear = shrinkage[:, None, None] * np.eye(size) - gain[:, :, None] * white[:, None, :]  # T
        moved = linear @ mean
        cross = np.einsum("n,na,nb->ab", weights * target, moved, gain)
        spread = np.einsum("n,na,nb->ab", weights * (target**2 + noise**2), gain, gain)
        second = np.einsum("n,nab,ncb->ac", weights, linear @ second, linear, optimize=True)
        second += cross + cross.T + spread
        mean = weights @ (moved + target[:, None] * gain)
        error[t] = distance()
    return Course(loss, error)


def quadrature(domain: tuple[float, float]) -> tuple[Floats, Floats]:
    """Nodes and weights of ∫ dx over a domain."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = 0.5 * (domain[1] - domain[0])
    return domain[0] + half * (1.0 + nodes), half * weights


def on_nodes(functions: Functions, target: Functions, domain: tuple[float, float]) -> Nodes:
    """The quadrature, with orthonormal functions."""
    at, weights = quadrature(domain)
    weighted = np.sqrt(weights)[:, None]
    across, root = np.linalg.qr(weighted * functions(at))
    return Nodes(weights / np.sum(weights), across / weighted, root, target(at))
