"""Which room may import which, held by reading the source rather than by running it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parent.parent

# The rooms of adfpp, lowest layer first. A room imports from the layers below it and, where no circle
# comes of it, from its own. `posterior` stands below the schedules because their `get_posterior` makes one.
LAYERS = (
    {"engine", "marks", "triangles", "arviz_lines"},
    {"importance", "arviz_plots"},
    {"field", "tilt", "distributions", "prior", "theory"},
    {"sites"},
    {"families", "dynamics"},
    {"factors", "components"},
    {"marginals"},
    {"kernel"},
    {"model"},
    {"start", "posterior", "stream"},
    {"explain", "calls", "results", "sweeps"},
    {"schedules"},
    {"adf", "ep", "baselines"},
    {"smoothing"},
    {"export", "fits", "checkpoint", "tabular"},
    {"plots", "baseline_fits"},
    {"selfcheck", "report"},
    {"compare"},
    {"__init__"},
    {"laboratory"},
    {"cli", "__main__"},
)
LAYER_OF = {room: layer for layer, rooms in enumerate(LAYERS) for room in rooms}
BOTTOM = 0  # where modules like adfpp._version stand
STRANGERS = {("theory", "families"), ("families", "theory")}

WITHOUT_NUMPYRO = {"field", "kernel", "families", "dynamics"}
NUMPYRO_INTERNALS = (
    "numpyro.handlers",
    "numpyro.primitives",
    "numpyro.infer.util",
    "numpyro.infer.initialization",
)
WITH_INTERNALS = {"model", "distributions", "posterior", "tilt"}


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


class Use(NamedTuple):
    """Something that a module reaches for: "numpyro.handlers.seed", whichever way it is spelt."""

    module: Module
    line: int
    target: str
    is_import: bool

    def __str__(self) -> str:
        return f"{self.module.name}:{self.line} uses {self.target}"


class Survey(NamedTuple):
    """What was read and what is wrong with it."""

    modules: set[str]
    edges: set[tuple[str, str]]  # (room, a room of adfpp that it imports)
    violations: list[str]


def survey(root: Path) -> Survey:
    """Read the Python files under `root` and hold them against the rules."""
    modules = {
        module.name: module
        for folder in ("adfpp", "models", "tests", "examples", "benchmarks")
        for module in read_folder(root, folder)
    }
    uses = [use for module in modules.values() for use in uses_of(module)]
    in_adfpp = [use for use in uses if within(use.module.name, "adfpp")]
    edges = {
        (room_of(use.module.name), room_of(resolve(use.target, modules)))
        for use in in_adfpp
        if use.is_import and within(use.target, "adfpp")
    }
    edges = {(room, other) for room, other in edges if room != other}
    violations = [
        *missing_docstrings(modules),
        *unknown_rooms(modules),
        *wrong_ways(in_adfpp, modules),
        *circles(edges),
        *private_uses(in_adfpp, modules),
        *numpyro_uses(in_adfpp),
        *jax_internals(uses),
        *model_uses(uses),
    ]
    return Survey(set(modules), edges, list(dict.fromkeys(violations)))


def missing_docstrings(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if not ast.get_docstring(module.tree):
            yield f"{module.name} has no docstring"


def unknown_rooms(modules: dict[str, Module]) -> Iterator[str]:
    for room in sorted({room_of(name) for name in modules if within(name, "adfpp")} - set(LAYER_OF)):
        if not room.startswith("_"):
            yield f"adfpp.{room} has no layer: give it one in LAYERS"


def wrong_ways(uses: list[Use], modules: dict[str, Module]) -> Iterator[str]:
    for use in uses:
        if not (use.is_import and within(use.target, "adfpp")):
            continue
        room, other = room_of(use.module.name), room_of(resolve(use.target, modules))
        if LAYER_OF.get(other, BOTTOM) > LAYER_OF.get(room, BOTTOM):
            yield f"{use}: {other} stands above {room}"
        if (room, other) in STRANGERS:
            yield f"{use}: {room} and {other} do not know each other"


def circles(edges: set[tuple[str, str]]) -> Iterator[str]:
    graph: dict[str, set[str]] = {}
    for room, other in edges:
        graph.setdefault(room, set()).add(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"rooms import each other in a circle: {' <- '.join(error.args[1])}"


def private_uses(uses: list[Use], modules: dict[str, Module]) -> Iterator[str]:
    for use in uses:
        if not within(use.target, "adfpp"):
            continue
        source = resolve(use.target, modules)
        # A module with an underscore is private to the package that it stands in; a name, to its module.
        parts = source.split(".")
        for depth, part in enumerate(parts):
            if is_private(part) and not within(use.module.name, ".".join(parts[:depth])):
                yield f"{use}: a private module"
        names = use.target.removeprefix(source).split(".")
        if source != use.module.name and any(is_private(name) for name in names):
            yield f"{use}: a private name"


def numpyro_uses(uses: list[Use]) -> Iterator[str]:
    for use in uses:
        room = room_of(use.module.name)
        if room in WITHOUT_NUMPYRO and within(use.target, "numpyro"):
            yield f"{use}: {room} knows JAX, not NumPyro"
        if room not in WITH_INTERNALS and any(within(use.target, inner) for inner in NUMPYRO_INTERNALS):
            yield f"{use}: go through adfpp.model, the room that knows NumPyro's internals"


def jax_internals(uses: list[Use]) -> Iterator[str]:
    for use in uses:
        if within(use.target, "jax._src"):
            yield f"{use}: JAX's private code"


def model_uses(uses: list[Use]) -> Iterator[str]:
    for use in uses:
        foreign = within(use.target, "adfpp") and not within(use.target, "adfpp.distributions")
        if within(use.module.name, "models") and foreign:
            yield f"{use}: a model imports nothing of adfpp but adfpp.distributions"


def read_folder(root: Path, folder: str) -> Iterator[Module]:
    for path in sorted((root / folder).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))


def uses_of(module: Module) -> Iterator[Use]:
    """Every import, and every dotted name that starts at an imported one."""
    names = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                names[bound] = alias.name if alias.asname else bound
                yield Use(module, node.lineno, alias.name, is_import=True)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                target = f"{source_of(node, module)}.{alias.name}"
                names[alias.asname or alias.name] = target
                yield Use(module, node.lineno, target, is_import=True)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            first, *rest = dotted(node)
            if first in names:
                yield Use(module, node.lineno, ".".join([names[first], *rest]), is_import=False)


def source_of(node: ast.ImportFrom, module: Module) -> str:
    """The absolute name of what stands between `from` and `import`."""
    above = module.package.split(".")[: -node.level + 1 or None] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def dotted(node: ast.expr) -> list[str]:
    """["a", "b", "c"] for `a.b.c`; an empty first part where it starts at anything but a name."""
    if isinstance(node, ast.Attribute):
        return [*dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else [""]


def resolve(target: str, modules: dict[str, Module]) -> str:
    """The module that a dotted name is found in: the longest part of it that is a file."""
    while target not in modules and "." in target:
        target = target.rpartition(".")[0]
    return target


def room_of(name: str) -> str:
    return (name.split(".") + ["__init__"])[1]


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


NAMED_TUPLE = {"_fields", "_replace", "_asdict", "_make"}  # public, whatever they look like


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def test_imports_go_one_way():
    """The rules hold here, and the rooms that they are about were read."""
    found = survey(REPOSITORY)
    assert {"adfpp", "adfpp.field", "adfpp.kernel", "adfpp.adf", "adfpp.model", "models"} <= found.modules
    assert {("adf", "kernel"), ("__init__", "adf")} <= found.edges
    assert found.violations == []


SOUND = {
    "adfpp/__init__.py": "from adfpp.adf import ADF as ADF",
    "adfpp/_version.py": "__version__ = '1'",
    "adfpp/field.py": "import jax\nfrom jax.extend import core",
    "adfpp/tilt/__init__.py": "from .closed import probit_tilt as probit_tilt",
    "adfpp/tilt/closed.py": "import numpyro.distributions\nfrom adfpp.tilt import _nodes\n_nodes.weights",
    "adfpp/tilt/_nodes.py": "weights = _own = 1\n_own",
    "adfpp/families/gaussian.py": "from adfpp._version import __version__",
    "adfpp/distributions.py": "from numpyro.infer.util import log_density\nimport adfpp.tilt as t\nt.nodes",
    "adfpp/theory/curves.py": "import numpy",
    "adfpp/kernel.py": "from adfpp.families.gaussian import Gaussian\nfrom . import field",
    "adfpp/model.py": "from numpyro import handlers\nfrom adfpp import field\nfield.cut",
    "adfpp/posterior.py": "from adfpp.model import Program",
    "adfpp/adf.py": "from adfpp.kernel import step\nfrom adfpp.posterior import Posterior",
    "adfpp/ep.py": "import adfpp.adf\nfrom numpyro.infer import NUTS",
    "adfpp/cli.py": "import adfpp\nadfpp.ADF",
    "models/probit.py": "import adfpp.distributions\nadfpp.distributions.Probit",
    "examples/demo.py": "import adfpp",
}


def plant(root: Path, files: dict[str, str]) -> Survey:
    for name, source in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f'"""What it is for."""\n{source}\n', encoding="utf-8")
    return survey(root)


def test_sound_tree_passes(tmp_path: Path):
    """Nothing is wrong with a tree that keeps every rule."""
    found = plant(tmp_path, SOUND)
    assert {"adfpp", "adfpp.tilt.closed", "models.probit", "examples.demo"} <= found.modules
    assert {("adf", "kernel"), ("ep", "adf"), ("kernel", "field"), ("__init__", "adf")} <= found.edges
    assert found.violations == []


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("adfpp/field.py", "from adfpp.kernel import step", "kernel stands above field"),
        ("adfpp/kernel.py", "import adfpp.adf", "adf stands above kernel"),
        ("adfpp/kernel.py", "def f():\n    from .model import Program", "model stands above kernel"),
        ("adfpp/adf.py", "from adfpp import compare", "__init__ stands above adf"),
        ("adfpp/compare.py", "from adfpp import ADF", "__init__ stands above compare"),
        ("adfpp/__init__.py", "from . import cli", "cli stands above __init__"),
        ("adfpp/theory/bounds.py", "from ..families import gaussian", "do not know each other"),
        ("adfpp/families/product.py", "import adfpp.theory.curves", "do not know each other"),
        ("adfpp/adf.py", "from adfpp import ep", "in a circle: "),
        ("adfpp/extra.py", "import jax", "adfpp.extra has no layer"),
        ("adfpp/kernel.py", "from adfpp.field import _cut", "adfpp.field._cut: a private name"),
        ("adfpp/kernel.py", "from adfpp import field as f\nf._cut()", "adfpp.field._cut: a private name"),
        ("adfpp/kernel.py", "import adfpp.field\nadfpp.field._cut", "adfpp.field._cut: a private name"),
        (
            "adfpp/kernel.py",
            "from adfpp.field import Cut\nCut._edges",
            "adfpp.field.Cut._edges: a private name",
        ),
        ("adfpp/kernel.py", "from adfpp.tilt._nodes import weights", "a private module"),
        ("adfpp/kernel.py", "import numpyro", "kernel knows JAX, not NumPyro"),
        ("adfpp/field.py", "from numpyro.distributions import Normal", "field knows JAX, not NumPyro"),
        ("adfpp/families/product.py", "import numpyro.distributions", "families knows JAX, not NumPyro"),
        ("adfpp/dynamics.py", "import numpyro as n", "dynamics knows JAX, not NumPyro"),
        ("adfpp/adf.py", "from numpyro import handlers", "go through adfpp.model"),
        ("adfpp/compare.py", "import numpyro\nnumpyro.handlers.seed", "go through adfpp.model"),
        ("adfpp/ep.py", "from numpyro.infer.util import log_density", "go through adfpp.model"),
        ("adfpp/field.py", "from jax._src import core", "JAX's private code"),
        ("tests/test_x.py", "import jax\njax._src.core", "JAX's private code"),
        ("models/probit.py", "from adfpp import ADF", "nothing of adfpp but adfpp.distributions"),
        (
            "models/probit.py",
            "from adfpp.tilt import register_tilt",
            "nothing of adfpp but adfpp.distributions",
        ),
        (
            "models/probit.py",
            "import adfpp.distributions\nadfpp.ADF",
            "nothing of adfpp but adfpp.distributions",
        ),
    ],
)
def test_planted_violation_is_caught(tmp_path: Path, name: str, source: str, complaint: str):
    """Each rule notices one break of it, in one file of a tree that is sound otherwise."""
    found = plant(tmp_path, SOUND | {name: source})
    assert any(complaint in violation for violation in found.violations), found.violations


def test_missing_docstring_is_caught(tmp_path: Path):
    """A comment is not a docstring."""
    plant(tmp_path, SOUND)
    (tmp_path / "adfpp" / "field.py").write_text("# What it is for.\nimport jax\n", encoding="utf-8")
    assert survey(tmp_path).violations == ["adfpp.field has no docstring"]
