"""Says which columns of a table make which argument of a model.

A *mapping* is written like ``y=label,x=age+income,g=city:code``::

    mapping   =  item , item , …
    item      =  argument = columns [: kind]
    columns   =  column                       a vector (n,)
              |  column + column + …          a matrix (n, k); "age+" is one column as a matrix (n, 1)
              |  *                            a matrix of all numeric columns that no other item names
    kind      =  number | int | code          the default is number

A name that contains one of ``, + = : * "`` is written in double quotes. ``number`` gives floats, with NaN for missing
cells; ``int`` gives whole numbers, for labels and indices; ``code`` gives 0, 1, …: the position of the cell's text in
a fixed list of categories.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from adfpp.io.cells import numbers
from adfpp.io.tables import Table, TableError

KINDS = ("number", "int", "code")
_TOKEN = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([,+=:*])|([^,+=:*"]+))')


@dataclass(frozen=True)
class Assignment:
    """One item of a mapping.

    Attributes:
        argument: The argument of the model.
        columns: The columns that it is made of; empty for ``*``.
        matrix: Whether it is a matrix rather than a vector.
        kind: "number", "int" or "code"; None if it is left out.
    """

    argument: str
    columns: tuple[str, ...]
    matrix: bool
    kind: str | None = None

    def __str__(self) -> str:
        """The item as it is written in a mapping."""
        columns = "+".join(quoted(c) for c in self.columns) if self.columns else "*"
        columns += "+" if self.matrix and len(self.columns) == 1 else ""
        return f"{quoted(self.argument)}={columns}" + (f":{self.kind}" if self.kind else "")


def parse_mapping(text: str) -> tuple[Assignment, ...]:
    """Reads a mapping as it is written on a command line."""
    tokens = _Tokens(text)
    items: list[Assignment] = []
    while True:
        item = _parsed_item(tokens)
        if item.argument in [i.argument for i in items]:
            raise TableError(f"The mapping names the argument {item.argument!r} twice: {text}.")
        items.append(item)
        if tokens.ended:
            break
        if not tokens.skip(","):
            raise tokens.error(f"{tokens.next_text!r} is where a comma should be")
    if sum(not i.columns for i in items) > 1:
        raise TableError(f"Only one argument can have all the other columns: {text} has several *.")
    return tuple(items)


def format_mapping(mapping: Sequence[Assignment]) -> str:
    """The text of a mapping."""
    return ",".join(map(str, mapping))


def mapping_by_name(table: Table, required: Sequence[str], optional: Sequence[str]) -> tuple[Assignment, ...]:
    """The mapping that is used if the user gives none.

    A column goes to the argument of the same name, and the other numeric columns go to the one required argument that
    is left over.

    Args:
        table: The table.
        required: The arguments of the model that have to be given.
        optional: The arguments that have a default.
    """
    items = [Assignment(name, (name,), False) for name in (*required, *optional) if name in table.columns]
    left = [name for name in required if name not in table.columns]
    if len(left) == 1:
        items.append(Assignment(left[0], (), True))
    elif left or not items:
        raise TableError(
            f"{table.name}: it is not clear which columns make the arguments {', '.join(left or optional)}. Give them "
            f"with --rows, for example --rows {(left or [*optional])[0]}={table.columns[0]}. The columns are "
            f"{listed(table.columns)}."
        )
    return tuple(items)


def resolve(mapping: Sequence[Assignment], table: Table) -> tuple[Assignment, ...]:
    """The mapping with the columns that ``*`` stands for, after checking that the table has every column."""
    for item in mapping:
        for column in item.columns:
            if column not in table.columns:
                near = difflib.get_close_matches(column, table.columns, 1, 0.5)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise TableError(
                    f"{table.name} has no column {column!r}.{hint} Its columns are {listed(table.columns)}."
                )
    named = {c for item in mapping for c in item.columns}
    out = []
    for item in mapping:
        if not item.columns:
            others = _numeric(table, [c for c in table.columns if c not in named])
            if not others:
                raise TableError(f"{table.name}: no numeric column is left for {item.argument}=*.")
            item = replace(item, columns=tuple(others))
        out.append(item)
    return tuple(out)


def quoted(name: str) -> str:
    """A name as it is written in a mapping."""
    if re.search(r'[,+=:*"]', name) or name != name.strip():
        return '"' + name.replace('"', '""') + '"'
    return name


def listed(names: Sequence[str]) -> str:
    """Names for a message, shortened if there are many."""
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _parsed_item(tokens: "_Tokens") -> Assignment:
    argument = tokens.name("an argument's name")
    if not tokens.skip("="):
        raise tokens.error(f"{argument!r} is not followed by =")
    columns, matrix = [], False
    if tokens.skip("*"):
        matrix = True
    else:
        columns.append(tokens.name("a column's name"))
        while tokens.skip("+"):
            matrix = True
            if tokens.at_name:
                columns.append(tokens.name("a column's name"))
    kind = tokens.name("a kind") if tokens.skip(":") else None
    if kind is not None and kind not in KINDS:
        raise TableError(f"{argument}: there is no kind {kind!r}; the kinds are {', '.join(KINDS)}.")
    return Assignment(argument, tuple(columns), matrix, kind)


class _Tokens:
    """The names and marks of a mapping, taken from the left."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens: list[tuple[bool, str]] = []  # whether it is a name, and its text
        self._next = 0
        at, end = 0, len(text.rstrip())
        while at < end:
            token = _TOKEN.match(text, at)
            if token is None:
                raise self.error("a double quote is not closed")
            in_quotes, mark, name = token.groups()
            if mark:
                self._tokens.append((False, mark))
            elif in_quotes is not None:
                self._tokens.append((True, in_quotes.replace('""', '"')))
            elif name.strip():
                self._tokens.append((True, name.strip()))
            at = token.end()

    @property
    def ended(self) -> bool:
        """Whether all tokens are taken."""
        return self._next == len(self._tokens)

    @property
    def at_name(self) -> bool:
        """Whether the next token is a name."""
        return not self.ended and self._tokens[self._next][0]

    @property
    def next_text(self) -> str:
        """The text of the next token."""
        return self._tokens[self._next][1]

    def name(self, what: str) -> str:
        """Takes a name; ``what`` describes it in the error if it is missing."""
        if not self.at_name:
            raise self.error(f"{what} is missing" + ("" if self.ended else f" before {self.next_text!r}"))
        self._next += 1
        return self._tokens[self._next - 1][1]

    def skip(self, mark: str) -> bool:
        """Takes the mark if it is the next token, and returns whether it was."""
        if not self.ended and self._tokens[self._next] == (False, mark):
            self._next += 1
            return True
        return False

    def error(self, cause: str) -> TableError:
        """The error of a mapping that cannot be read."""
        return TableError(
            f"Cannot read the mapping {self.text!r}: {cause}. It is written like y=label,x=age+income,g=city:code."
        )


def _numeric(table: Table, candidates: Sequence[str]) -> list[str]:
    """The columns that hold numbers, as far as the first rows show (of standard input, the first row)."""
    first = table.look()
    out = []
    for column in candidates:
        try:
            values = numbers(first[column])
        except ValueError:
            continue
        if values.ndim == 1:
            out.append(column)
    return out
