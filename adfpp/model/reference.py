"""The name of a model, and its form inside a pickle."""

import inspect
import pickle
from collections.abc import Callable


def model_name(model: object) -> str:
    """The name of a model function, or of the class of a callable object."""
    inner = getattr(model, "func", None)  # of functools.partial
    if inner is not None:
        return model_name(inner)
    return getattr(model, "__qualname__", type(model).__qualname__)


class ModelReference:
    """A model inside a pickle: by its import path, or by value if it has none and cloudpickle is installed."""

    def __init__(self, model: Callable[..., object]) -> None:
        self.model = model

    def __reduce__(self) -> tuple[object, ...]:
        found = inspect.unwrap(self.model) if inspect.isfunction(self.model) else self.model
        # a function defined in __main__ is found again by its name only in the same script
        importable = getattr(found, "__module__", None) != "__main__"
        if importable:
            try:
                pickle.dumps(self.model)
                return ModelReference, (self.model,)
            except (pickle.PicklingError, AttributeError, TypeError):
                pass
        try:
            import cloudpickle
        except ImportError:
            if not importable:
                return ModelReference, (self.model,)
            raise pickle.PicklingError(
                f"The model {self.model!r} cannot be found by an import path, so it cannot be pickled. Define it at "
                "the top level of a module, or install cloudpickle, which pickles functions by value."
            ) from None
        return _by_value, (cloudpickle.dumps(self.model),)


def _by_value(model: bytes) -> ModelReference:
    return ModelReference(pickle.loads(model))
