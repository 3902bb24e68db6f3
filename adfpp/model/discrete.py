"""Models with discrete latents: all combinations of their values, and the form that NumPyro's Gibbs samplers need."""

import math
from functools import wraps

import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.primitives import Messenger

from adfpp.model.arguments import Model
from adfpp.model.joint import Joint
from adfpp.model.latents import Latent
from adfpp.model.program import Program
from adfpp.model.visit import Message

MOST = 1 << 14  # the largest number of combinations that are enumerated
_EVALUATIONS = 1 << 21  # rows times combinations evaluated at once


def discrete_latents(program: Program) -> list[Latent]:
    """The latents that all rows share and whose values can be listed."""
    return [latent for latent in program.latents if latent.discrete and latent.size]


def levels(program: Program) -> list[tuple[float, ...] | None]:
    """The possible values of each coordinate of θ, or None for a continuous coordinate."""
    out: list[tuple[float, ...] | None] = [None] * program.size
    for latent in discrete_latents(program):
        out[latent.where] = [latent.native.levels] * latent.size
    return out


def combinations(program: Program, most: int = MOST) -> np.ndarray | None:
    """All θ ``(M, N)`` of a model with discrete latents only; None if there are others, or more than ``most`` θ."""
    values = levels(program)
    listed = [v for v in values if v is not None]
    if not values or len(listed) < len(values) or math.prod(len(v) for v in listed) > most:
        return None
    grid = np.meshgrid(*(np.asarray(v, float) for v in listed), indexing="ij")
    return np.stack([a.ravel() for a in grid], -1).astype(program.dtype)


def log_joint_of(joint: Joint, theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Log of prior times likelihood ``(M,)`` at many θ ``(M, N)``, some of them at a time.

    Args:
        joint: Model and data.
        theta: ``(M, N)`` the points.
        rows: The rows whose likelihood is included.
    """
    width = 1 << (min(len(theta), max(1, _EVALUATIONS // max(1, min(len(rows), 4096)))) - 1).bit_length()
    padded = np.concatenate([theta, np.repeat(theta[-1:], -len(theta) % width, 0)])  # one shape to compile
    parts = [joint.log_joint(padded[i : i + width], rows) for i in range(0, len(padded), width)]
    return np.concatenate(parts)[: len(theta)]


def listed(model: Model) -> Model:
    """The model as NumPyro's Gibbs kernels need it: discrete latents list their values, also under ``to_event``."""

    @wraps(model)
    def with_values(*args: object, **kwargs: object) -> object:
        with _Listed():
            return model(*args, **kwargs)

    return with_values


class _Enumerable(dist.Independent):
    """Independent elements, with the values that one of them may have."""

    def enumerate_support(self, expand: bool = True) -> ArrayLike:
        """The values of one element."""
        return self.base_dist.enumerate_support(expand)


class _Listed(Messenger):
    """Replaces the distributions of discrete latents under ``to_event`` by ``_Enumerable`` ones."""

    def process_message(self, msg: Message) -> None:
        """Replaces a latent's distribution before a value is drawn from it."""
        fn = msg.get("fn")
        if msg["type"] == "sample" and not msg["is_observed"] and type(fn) is dist.Independent:
            if fn.has_enumerate_support:
                msg["fn"] = _Enumerable(fn.base_dist, fn.reinterpreted_batch_ndims)
