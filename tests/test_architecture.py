"""Which package may import which: read from the source rather than found out by running it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parent.parent

# The packages of adfpp, lowest layer first. A package imports from the layers below it and from itself.
LAYERS = (
    {"engine"},
    {"model", "distributions"},
    {"learn"},
    {"judge"},
    {"show", "io"},
    {"_public", "__init__", "adapters", "papers", "cli", "__main__"},
)
LAYER_OF = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}
BOTTOM = 0  # for modules such as adfpp._version
# Imports that may stand in the body of a function only, so that drawing and the papers are loaded when they are asked
# for. The first of them is the only one that goes up: `Comparison.plot`, `.report` and `Check.plot` are conveniences.
LAZY = {("judge", "show"), ("cli", "papers")}

NUMPYRO_INTERNALS = (
    "numpyro.handlers",
    "numpyro.primitives",
    "numpyro.infer.util",
    "numpyro.infer.initialization",
)
WITH_INTERNALS = {"model", "distributions"}


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name and its text."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree, made only where a rule needs it: parsing takes most of the time."""
        return ast.parse(self.text, str(self.path))

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
    is_lazy: bool = False

    def __str__(self) -> str:
        return f"{self.module.name}:{self.line} uses {self.target}"


class Survey(NamedTuple):
    """What was read and what is wrong with it."""

    modules: set[str]
    edges: set[tuple[str, str]]  # (package, another package of adfpp that it imports)
    violations: list[str]


def survey(root: Path) -> Survey:
    """Read the Python files under `root` and hold them against the rules."""
    modules = {
        module.name: module
        for folder in ("adfpp", "models", "tests", "examples", "benchmarks")
        for module in read_folder(root, folder)
    }
    uses = [use for module in modules.values() if restricted(module) for use in uses_of(module)]
    in_adfpp = [use for use in uses if within(use.module.name, "adfpp")]
    edges = {
        (package_of(use.module.name), package_of(resolve(use.target, modules)))
        for use in in_adfpp
        if use.is_import and within(use.target, "adfpp")
    }
    edges = {(package, other) for package, other in edges if package != other}
    violations = [
        *missing_docstrings(modules),
        *unknown_packages(modules),
        *wrong_ways(in_adfpp, modules),
        *circles(edges - LAZY),
        *private_uses(in_adfpp, modules),
        *numpyro_uses(in_adfpp),
        *jax_internals(uses),
        *model_uses(uses),
    ]
    return Survey(set(modules), edges, list(dict.fromkeys(violations)))


def missing_docstrings(modules: dict[str, Module]) -> Iterator[str]:
    for module in modules.values():
        if not module.text.startswith(('"""', 'r"""')):
            yield f"{module.name} has no docstring"


def unknown_packages(modules: dict[str, Module]) -> Iterator[str]:
    for package in sorted({package_of(name) for name in modules if within(name, "adfpp")} - set(LAYER_OF)):
        if not package.startswith("_"):
            yield f"adfpp.{package} has no layer: give it one in LAYERS"


def wrong_ways(uses: list[Use], modules: dict[str, Module]) -> Iterator[str]:
    for use in uses:
        if not (use.is_import and within(use.target, "adfpp")):
            continue
        package, other = package_of(use.module.name), package_of(resolve(use.target, modules))
        if (package, other) in LAZY:
            if not use.is_lazy:
                yield f"{use}: {package} imports {other} inside functions only"
        elif LAYER_OF.get(other, BOTTOM) > LAYER_OF.get(package, BOTTOM):
            yield f"{use}: {other} stands above {package}"


def circles(edges: set[tuple[str, str]]) -> Iterator[str]:
    graph: dict[str, set[str]] = {}
    for package, other in edges:
        graph.setdefault(package, set()).add(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield f"packages import each other in a circle: {' <- '.join(error.args[1])}"


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
        package = package_of(use.module.name)
        if package == "engine" and within(use.target, "numpyro"):
            yield f"{use}: the engine knows JAX, not NumPyro"
        if package not in WITH_INTERNALS and any(within(use.target, inner) for inner in NUMPYRO_INTERNALS):
            yield f"{use}: go through adfpp.model, the package that knows NumPyro's internals"


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
        yield Module(name, path, path.read_text(encoding="utf-8"))


def restricted(module: Module) -> bool:
    """Whether a rule is about what the module uses: all but one are about adfpp and the models."""
    return within(module.name, "adfpp") or within(module.name, "models") or "_src" in module.text


def uses_of(module: Module) -> Iterator[Use]:
    """Every import, and every dotted name that starts at an imported one."""
    names: dict[str, str] = {}
    attributes: list[tuple[int, list[str]]] = []
    todo: list[tuple[ast.AST, bool]] = [(module.tree, False)]
    while todo:
        node, lazy = todo.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                names[bound] = alias.name if alias.asname else bound
                yield Use(module, node.lineno, alias.name, True, lazy)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                target = f"{source_of(node, module)}.{alias.name}"
                names[alias.asname or alias.name] = target
                yield Use(module, node.lineno, target, True, lazy)
        elif isinstance(node, ast.Attribute):
            attributes.append((node.lineno, dotted(node)))
        lazy = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        todo.extend((child, lazy) for child in ast.iter_child_nodes(node))
    for line, (first, *rest) in attributes:
        if first in names:
            yield Use(module, line, ".".join([names[first], *rest]), is_import=False)


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


def package_of(name: str) -> str:
    return (name.split(".") + ["__init__"])[1]


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


NAMED_TUPLE = {"_fields", "_replace", "_asdict", "_make"}  # public, whatever they look like


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def test_imports_go_one_way():
    """The rules hold here, and the packages that they are about were read."""
    found = survey(REPOSITORY)
    assert {"adfpp", "adfpp.engine.kernel", "adfpp.learn.adf", "adfpp.model", "models"} <= found.modules
    assert {("learn", "engine"), ("_public", "learn"), ("judge", "show")} <= found.edges
    assert found.violations == []


SOUND = {
    "adfpp/__init__.py": "from adfpp.learn.adf import ADF as ADF",
    "adfpp/_version.py": "__version__ = '1'",
    "adfpp/engine/__init__.py": "",
    "adfpp/engine/field.py": "import jax\nfrom jax.extend import core",
    "adfpp/engine/tilt/__init__.py": "from .closed import probit_tilt as probit_tilt",
    "adfpp/engine/tilt/closed.py": "from adfpp.engine.tilt import _nodes\n_nodes.weights",
    "adfpp/engine/tilt/_nodes.py": "weights = _own = 1\n_own",
    "adfpp/engine/kernel.py": "from adfpp._version import __version__\nfrom . import field",
    "adfpp/distributions.py": "from numpyro.infer.util import log_density\nimport adfpp.engine.tilt as t\nt.nodes",
    "adfpp/model/__init__.py": "from numpyro import handlers\nfrom adfpp.engine import field\nfield.cut",
    "adfpp/learn/__init__.py": "",
    "adfpp/learn/adf.py": "from adfpp.engine.kernel import step\nfrom adfpp.learn.posterior import Posterior",
    "adfpp/learn/posterior.py": "from adfpp.model import Program\nfrom numpyro.infer import NUTS",
    "adfpp/judge/__init__.py": "def plot():\n    from adfpp.show.plots import draw",
    "adfpp/show/__init__.py": "",
    "adfpp/show/plots.py": "from adfpp.judge import Comparison\nfrom adfpp.io import tables",
    "adfpp/io/__init__.py": "",
    "adfpp/io/tables.py": "import numpy",
    "adfpp/cli.py": "import adfpp\nadfpp.ADF\ndef f():\n    from adfpp.papers import curves",
    "adfpp/papers/__init__.py": "",
    "adfpp/papers/curves.py": "import numpy\nfrom adfpp import ADF",
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
    assert {"adfpp", "adfpp.engine.tilt.closed", "models.probit", "examples.demo"} <= found.modules
    assert {("learn", "engine"), ("show", "judge"), ("__init__", "learn"), ("cli", "papers")} <= found.edges
    assert found.violations == []


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("adfpp/engine/kernel.py", "import adfpp.learn.adf", "learn stands above engine"),
        ("adfpp/engine/kernel.py", "def f():\n    from ..model import Program", "model stands above engine"),
        ("adfpp/model/rows.py", "from adfpp.learn import adf", "learn stands above model"),
        ("adfpp/learn/adf.py", "from adfpp.judge import compare", "judge stands above learn"),
        ("adfpp/learn/adf.py", "from adfpp import ADF", "__init__ stands above learn"),
        ("adfpp/judge/check.py", "from adfpp.io import tables", "io stands above judge"),
        ("adfpp/judge/check.py", "from adfpp.show import plots", "judge imports show inside functions only"),
        ("adfpp/cli.py", "from adfpp.papers import curves", "cli imports papers inside functions only"),
        ("adfpp/show/plots.py", "def f():\n    import adfpp.papers.curves", "papers stands above show"),
        ("adfpp/io/tables.py", "from adfpp.show import plots\n", "in a circle: "),
        ("adfpp/extra.py", "import jax", "adfpp.extra has no layer"),
        ("adfpp/engine/kernel.py", "from adfpp.engine.field import _cut", "adfpp.engine.field._cut: a private name"),
        ("adfpp/engine/kernel.py", "from adfpp.engine import field as f\nf._cut()", "field._cut: a private name"),
        ("adfpp/engine/kernel.py", "import adfpp.engine.field\nadfpp.engine.field._cut", "field._cut: a private name"),
        ("adfpp/learn/adf.py", "from adfpp.model import Cut\nCut._edges", "adfpp.model.Cut._edges: a private name"),
        ("adfpp/learn/adf.py", "from adfpp.engine.tilt._nodes import weights", "a private module"),
        ("adfpp/engine/kernel.py", "import numpyro", "the engine knows JAX, not NumPyro"),
        ("adfpp/engine/field.py", "from numpyro.distributions import Normal", "the engine knows JAX, not NumPyro"),
        ("adfpp/learn/adf.py", "from numpyro import handlers", "go through adfpp.model"),
        ("adfpp/judge/compare.py", "import numpyro\nnumpyro.handlers.seed", "go through adfpp.model"),
        ("adfpp/io/tables.py", "from numpyro.infer.util import log_density", "go through adfpp.model"),
        ("adfpp/engine/field.py", "from jax._src import core", "JAX's private code"),
        ("tests/test_x.py", "import jax\njax._src.core", "JAX's private code"),
        ("models/probit.py", "from adfpp import ADF", "nothing of adfpp but adfpp.distributions"),
        ("models/probit.py", "import adfpp.distributions\nadfpp.ADF", "nothing of adfpp but adfpp.distributions"),
    ],
)
def test_planted_violation_is_caught(tmp_path: Path, name: str, source: str, complaint: str):
    """Each rule notices one break of it, in one file of a tree that is sound otherwise."""
    found = plant(tmp_path, SOUND | {name: source})
    assert any(complaint in violation for violation in found.violations), found.violations


def test_missing_docstring_is_caught(tmp_path: Path):
    """A comment is not a docstring."""
    plant(tmp_path, SOUND)
    (tmp_path / "adfpp" / "engine" / "field.py").write_text("# What it is for.\nimport jax\n", encoding="utf-8")
    assert survey(tmp_path).violations == ["adfpp.engine.field has no docstring"]


# Modules without a test file of their own name, and where they are tested.
TESTED_ELSEWHERE = {
    "engine/tilt/landmarks.py": "engine/trace/test_landmarks.py",  # only a tuple, which trace/landmarks.py fills
}


def untested_modules(root: Path) -> list[str]:
    """The modules of the lower layers that have no test file at the mirrored place."""
    missing = []
    for package in ("engine", "model", "learn"):
        for path in sorted((root / "adfpp" / package).rglob("*.py")):
            module = path.relative_to(root / "adfpp")
            test = TESTED_ELSEWHERE.get(module.as_posix(), module.with_name(f"test_{module.name}"))
            if path.name != "__init__.py" and not (root / "tests" / test).is_file():
                missing.append(module.as_posix())
    return missing


def test_tests_mirror_the_packages(tmp_path: Path):
    """A reader finds the tests of a module by its name, and what is excepted has no such file."""
    assert untested_modules(REPOSITORY) == []
    for module, test in TESTED_ELSEWHERE.items():
        assert (REPOSITORY / "adfpp" / module).is_file() and (REPOSITORY / "tests" / test).is_file()
        assert not (REPOSITORY / "tests" / module).with_name(f"test_{Path(module).name}").exists()
    plant(tmp_path, SOUND | {"tests/engine/test_field.py": "", "tests/engine/tilt/test_closed.py": ""})
    missing = untested_modules(tmp_path)
    assert "engine/kernel.py" in missing and not {"engine/field.py", "engine/tilt/closed.py"} & set(missing)


def test_few_public_names():
    """What belongs to a topic is reached through its module; an old name says where it is now."""
    import adfpp

    assert len(adfpp.__all__) <= 30 and all(hasattr(adfpp, name) for name in adfpp.__all__)
    with pytest.warns(DeprecationWarning, match=r"adfpp\.Smoothed is now adfpp\.learn\.smoothing\.Smoothed"):
        assert adfpp.Smoothed.__module__ == "adfpp.learn.smoothing"
    with pytest.warns(DeprecationWarning, match=r"adfpp\.baselines is now adfpp\.papers\.baselines"):
        assert adfpp.baselines.Rosenblatt
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        adfpp.nothing  # noqa: B018
