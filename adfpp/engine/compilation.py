"""How XLA compiles adfpp's programs on a CPU.

The programs consist of many small loops, and compiling them takes most of the time of a first call. XLA's last
optimisations take a part of that time, and make these programs no faster, so programs are compiled without them. A
program that runs a few times is compiled as fast as possible.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeAlias

import jax
import jaxlib
from jax.extend.core import find_top_trace

_Options = dict[str, bool | int]
Effort: TypeAlias = Literal["full", "light", "least"]

# For programs that run for each row, for those whose arrays are small, and for those that run a few times.
_FULL: _Options = {"xla_backend_optimization_level": 1}
_LIGHT: _Options = {"xla_backend_optimization_level": 1}
_LEAST: _Options = {"xla_backend_optimization_level": 0}
if jaxlib.version.__version_info__ < (0, 11):  # later versions have no such emitters
    # without them, programs compile in two thirds of the time, and rows of 50 numbers take 1.3 times as long
    _LIGHT["xla_cpu_use_fusion_emitters"] = _LEAST["xla_cpu_use_fusion_emitters"] = False
_OPTIONS = {"full": _FULL, "light": _LIGHT, "least": _LEAST}


def _options(options: _Options) -> _Options | None:
    """The options of the compiler, without those that the user has set."""
    if jax.default_backend() != "cpu":
        return None
    given = os.environ.get("XLA_FLAGS", "")
    return {name: value for name, value in options.items() if name not in given} or None


def run_once(f: Callable[..., Any], *args: Any) -> Any:
    """Calls a function of arrays as one program that is compiled as fast as possible, because it runs only once.

    The arrays have values, also if a model is read while a user's function is traced, and so has the result.
    """
    with evaluated():
        return jax.jit(f, compiler_options=_options(_LEAST))(*args)


def evaluated() -> AbstractContextManager[None]:
    """A context in which JAX computes values, also if a user's function is being traced.

    Outside of such a function it changes nothing. There ``jax.ensure_compile_time_eval`` would do harm: the constants
    of each program would be computed one by one, each by a small program of its own.
    """
    return jax.ensure_compile_time_eval() if _inside() else nullcontext()


class Compiled:
    """A function under ``jax.jit``, which users may call inside transformations of their own.

    JAX takes no options for a program inside another one, so there the function is compiled with that one's.

    Attributes:
        outermost: The function as a program of its own.
        inside: The function as a part of a program that is being traced.
    """

    def __init__(self, f: Callable[..., Any], effort: Effort = "full") -> None:
        """Compiles nothing before the first call. The less effort, the faster, and the slower the program."""
        self.outermost = jax.jit(f, compiler_options=_options(_OPTIONS[effort]))
        self.inside = jax.jit(f)

    def __call__(self, *args: Any) -> Any:
        """Calls the function."""
        return (self.inside if _inside() else self.outermost)(*args)


def _inside() -> bool:
    """Whether JAX is tracing or transforming a function, so that its trace is not the one that evaluates."""
    return type(find_top_trace(())).__name__ != "EvalTrace"
