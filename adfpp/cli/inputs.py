"""Makes the learner, its rows and its constants from the options of the command line."""

import argparse
import ast
import contextlib
import difflib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, cast

import adfpp
from adfpp.cli.options import FAMILIES, UsageError
from adfpp.cli.signals import StandardInput, Stop
from adfpp.engine.dynamics import Dynamics
from adfpp.engine.families.named import LATENT_FAMILIES
from adfpp.io.csv_reader import Csv
from adfpp.io.files import open_table
from adfpp.io.mapping import Assignment, format_mapping, mapping_by_name, parse_mapping
from adfpp.io.rows import Rows, read_rows
from adfpp.io.tables import Table
from adfpp.model.arguments import signature_of

Constant: TypeAlias = int | float | str | bool | None
Saved: TypeAlias = Mapping[str, Any]  # the values that a checkpoint keeps beside the state

_DYNAMICS = {
    "random-walk": adfpp.RandomWalk,
    "discount": adfpp.Discount,
    "ornstein-uhlenbeck": adfpp.OrnsteinUhlenbeck,
}
_COUNT = re.compile(r"count\((\w+)\)")


class Inputs(NamedTuple):
    """The inputs of a command.

    Attributes:
        adf: The learner that visits each row once.
        ep: The learner that visits rows again.
        rows: The data.
        constants: The other arguments of the model: numbers, words, true and false.
    """

    adf: adfpp.ADF
    ep: adfpp.EP
    rows: Rows
    constants: dict[str, Any]


def table_of(data: str, stop: Stop, header: Sequence[str] | None = None) -> Table:
    """The table in a file, or that of standard input for "-".

    Args:
        data: The name of the file.
        stop: The request that ends standard input early.
        header: The columns of standard input, if they are known, so that the header may be missing.
    """
    if data != "-":
        return open_table(data)
    source = StandardInput(cast(BufferedReader, sys.stdin.buffer), stop)
    return Csv("standard input", lambda: source, live=True, header=header)


def read_inputs(args: argparse.Namespace, table: Table, saved: Saved | None = None) -> Inputs:
    """Makes the learners, the rows and the constants.

    Args:
        args: The options.
        table: The data.
        saved: The values in the checkpoint of the stream that is continued.
    """
    model = model_named(args.model)
    signature = signature_of(model).parameters
    parameters = {n: p for n, p in signature.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    settings = _settings(args.set)
    rows = _rows(args, table, saved, [n for n in parameters if n not in settings], parameters)
    constants: dict[str, Constant] = {name: _constant(text, name, rows) for name, text in settings.items()}
    takes_any = any(p.kind == p.VAR_KEYWORD for p in signature.values())
    _check_arguments(args.model, parameters, takes_any, rows, constants)
    options: dict[str, Any] = {
        "family": family_of(args.family or "full"),
        "moments": args.moments or "auto",
        "rows": [n for n in rows.arguments if n != "dt" or "dt" in parameters],
    }
    adf = adfpp.ADF(model, dynamics=_dynamics(args.dynamics), **options)
    return Inputs(adf, adfpp.EP(model, **options), rows, constants)


def _rows(
    args: argparse.Namespace,
    table: Table,
    saved: Saved | None,
    names: Sequence[str],
    parameters: Mapping[str, inspect.Parameter],
) -> Rows:
    """The rows, by the mapping of a checkpoint, of the command line, or of the columns' names, which is printed."""
    if saved is not None:
        mapping = _same_mapping(args.rows, saved["mapping"])
        if args.categories and _categories(args.categories) != saved["categories"]:
            raise UsageError("--categories differs from that of the checkpoint, which is fixed for the stream.")
        return read_rows(table, mapping, saved["categories"])
    if args.rows is None:
        required = [n for n in names if parameters[n].default is inspect.Parameter.empty]
        mapping = mapping_by_name(table, required, [n for n in names if n not in required])
    else:
        mapping = parse_mapping(args.rows)
    rows = read_rows(table, mapping, _categories(args.categories))
    if args.rows is None or any(not i.columns for i in mapping):
        print(f"adfpp: --rows {format_mapping(rows.mapping)}", file=sys.stderr)
    return rows


def _check_arguments(
    model: str,
    parameters: Mapping[str, inspect.Parameter],
    takes_any: bool,
    rows: Rows,
    constants: Mapping[str, Constant],
) -> None:
    """Refuses arguments that the model does not have, that are given twice, or that are missing."""
    given = {*rows.arguments, *constants}
    for name in (*rows.arguments, *constants):
        if name not in parameters and name != "dt" and not takes_any:
            near = difflib.get_close_matches(name, parameters, 1, 0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(
                f"The model {model} has no argument {name!r}.{hint} Its arguments are {', '.join(parameters)}."
            )
        if name in constants and name in rows.arguments:
            raise UsageError(f"The argument {name!r} is given twice, by --rows and by --set.")
    for name, p in parameters.items():
        if p.default is p.empty and name not in given:
            raise UsageError(
                f"The model {model} needs its argument {name!r}: give columns with --rows {name}=…, or a number with "
                f"--set {name}=…."
            )


def _same_mapping(given: str | None, kept: str) -> tuple[Assignment, ...]:
    """The mapping of a checkpoint, after checking that the command line gives the same one or none."""
    mapping = parse_mapping(kept)
    if given is not None:
        known = {item.argument: item for item in mapping}
        wanted = {}
        for item in parse_mapping(given):
            there = known.get(item.argument)
            wanted[item.argument] = replace(item, columns=there.columns) if there and not item.columns else item
        if wanted != known:
            raise UsageError(
                f"--rows {given} differs from that of the checkpoint, {kept}. Leave --rows out to continue, or start "
                "again under another name."
            )
    return mapping


def model_named(name: str) -> Callable[..., object]:
    """The model ``path.py:function``, or the one with this name in the folder ``models``."""
    path, colon, function = name.rpartition(":")
    if not colon:
        path, function = name, ""
    if path.endswith(".py"):
        module, where = _module_at(Path(path)), path
        function = function or "model"
    else:
        module, where = _named_module(name), f"models.{name}"
        function = "model"
    model = getattr(module, function, None)
    if not callable(model):
        names = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        raise UsageError(
            f"{where} has no function {function!r}. Its functions are {', '.join(names) or 'none'}: write {path}:name."
        )
    return model


def _module_at(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"There is no file {path}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with _importing_from(path.resolve().parent):
        spec.loader.exec_module(module)
    return module


def _named_module(name: str) -> ModuleType:
    with _importing_from(Path.cwd()):
        try:
            package = importlib.import_module("models")
            names = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
        except ModuleNotFoundError:
            names = []
        if name in names:
            return importlib.import_module(f"models.{name}")
    known = f"The models in the folder models are {', '.join(names)}" if names else "There is no folder models here"
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"There is no model {name!r}.{hint} {known}; a model in another file is written path.py:function.")


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Puts the folder first in the search path, as for a script in it."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def _settings(given: Sequence[str]) -> dict[str, str]:
    """Splits ``n_groups=8,scale=2.5`` into text by name."""
    out: dict[str, str] = {}
    for item in ",".join(given).split(",") if given else ():
        name, equals, value = item.partition("=")
        if not (equals and name.strip() and value.strip()):
            raise UsageError(f"--set is written like --set n_groups=8,scale=2.5; this is not: {item!r}.")
        out[name.strip()] = value.strip()
    return out


def _constant(text: str, name: str, rows: Rows) -> Constant:
    counted = _COUNT.fullmatch(text)
    if counted:
        count = rows.category_count(counted[1])
        if count is None:
            raise UsageError(f"--set {name}={text}: no argument {counted[1]!r} is made of categories (:code).")
        return count
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    if not isinstance(value, int | float | str | None):
        raise UsageError(f"--set {name}={text}: constants are numbers, true, false or words.")
    return value


def _categories(given: Sequence[str]) -> dict[str, list[str]]:
    """Splits ``city=Rome,Oslo`` into lists by column."""
    out = {}
    for item in given:
        name, equals, value = item.partition("=")
        texts = [t.strip() for t in value.split(",")]
        if not (equals and name.strip() and all(texts)):
            raise UsageError(f"--categories is written like --categories city=Rome,Oslo; this is not: {item!r}.")
        doubled = [t for t in texts if texts.count(t) > 1]
        if doubled:
            raise UsageError(f"--categories {item} has {doubled[0]!r} twice.")
        out[name.strip().strip('"')] = texts
    return out


def family_of(text: str) -> str | dict[str, str]:
    """Reads one family for all latents, or ``precision=gamma,sign=bernoulli`` by latent."""
    if "=" not in text:
        if text not in FAMILIES:
            raise UsageError(
                f"--family {text}: it is one of {', '.join(FAMILIES)} for all latents, or given by latent, like "
                "precision=gamma,sign=bernoulli."
            )
        return text
    out: dict[str, str] = {}
    for item in text.split(","):
        latent, equals, family = (part.strip() for part in item.partition("="))
        near = difflib.get_close_matches(family, LATENT_FAMILIES, 1, 0.5)
        if not (equals and latent and family):
            raise UsageError(f"--family is written like --family precision=gamma,w=full; this is not: {item!r}.")
        if family not in LATENT_FAMILIES:
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise UsageError(
                f"--family {item.strip()}: there is no family {family!r} of a latent.{hint} The families are "
                f"{', '.join(LATENT_FAMILIES)}."
            )
        if latent in out:
            raise UsageError(f"--family names the latent {latent!r} twice.")
        out[latent] = family
    return out


def _dynamics(text: str | None) -> Dynamics | None:
    if text is None:
        return None
    name, _, number = text.partition("=")
    try:
        return _DYNAMICS[name](float(number))
    except (KeyError, ValueError) as error:
        cause = str(error) if name in _DYNAMICS and number else "it takes a name and a number"
        raise UsageError(
            f"--dynamics {text}: {cause}. It is written like random-walk=0.001, discount=0.99 or "
            "ornstein-uhlenbeck=100."
        ) from None


def checkpoint_path(text: str | None) -> Path | None:
    """The path of the checkpoint, after checking that it can be written there."""
    if text is None:
        return None
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"The checkpoint {path} cannot be written: there is no folder {path.absolute().parent}.")
    if path.is_dir():
        raise UsageError(f"The checkpoint {path} is a folder; give a file's name.")
    return path


def output_folder(text: str | None, *also: str) -> Path | None:
    """The folder for results, created if there is none.

    Args:
        text: The path of the folder, or None.
        also: Other kinds of output beside netCDF files: "a report".
    """
    if text is None:
        return None
    for what, packages, title, extra in _WRITERS:  # checked before a long computation, not after it
        if what in ("netCDF files", *also) and not any(importlib.util.find_spec(name) for name in packages):
            raise UsageError(f"--out writes {what} by {title}, which is not installed: pip install 'adfpp[{extra}]'.")
    Path(text).mkdir(parents=True, exist_ok=True)
    return Path(text)


# For each kind of output: the packages of which one is needed, the name of the one to install, and the extra with it.
_WRITERS = (
    ("netCDF files", ("h5netcdf", "netCDF4"), "h5netcdf", "netcdf"),
    ("a report", ("jinja2",), "Jinja2", "report"),
    ("a report", ("matplotlib",), "Matplotlib", "report"),
)
