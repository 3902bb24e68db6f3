"""Mappings: how columns become arguments, as it is written and read."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adfpp.io.files import open_table
from adfpp.io.mapping import Assignment, format_mapping, mapping_by_name, parse_mapping, resolve
from adfpp.io.tables import TableError


def test_mapping_is_read():
    """Vector, matrix, matrix of one column, all others, kinds, and names in quotes."""
    mapping = parse_mapping(' y = label:int, x=age+income ,z=age+, "a,b"="income (k=1)"+"say ""hi""":code,rest=*')
    assert mapping == (
        Assignment("y", ("label",), False, "int"),
        Assignment("x", ("age", "income"), True),
        Assignment("z", ("age",), True),
        Assignment("a,b", ("income (k=1)", 'say "hi"'), True, "code"),
        Assignment("rest", (), True),
    )


names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1).filter(lambda t: t.strip())


@given(
    st.dictionaries(
        names.map(str.strip),
        st.tuples(st.lists(names.map(str.strip), min_size=1, max_size=3), st.booleans()),
        min_size=1,
    )
)
def test_mapping_is_written_as_it_is_read(items: dict[str, tuple[list[str], bool]]):
    """Whatever the names are, the text of a mapping reads back as the mapping."""
    mapping = tuple(Assignment(a, tuple(c), m or len(c) > 1, "code" if m else None) for a, (c, m) in items.items())
    assert parse_mapping(format_mapping(mapping)) == mapping


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an argument's name is missing"),
        ("y", "'y' is not followed by ="),
        ("y=", "a column's name is missing"),
        ("y=,x=a", "a column's name is missing before ','"),
        ("y=a:float", "there is no kind 'float'; the kinds are number, int, code"),
        ("y=a,y=b", "names the argument 'y' twice"),
        ("x=*,y=*", "Only one argument"),
        ("y=a=b", "'=' is where a comma should be"),
        ('y="a', "a double quote is not closed"),
        ("y=a,", "argument's name is missing"),
    ],
)
def test_mapping_errors(text: str, message: str):
    with pytest.raises(TableError, match=message):
        parse_mapping(text)


def test_missing_column(people: Path):
    """The message has the nearest name, and all of them."""
    with pytest.raises(TableError, match="no column 'incom'. Did you mean 'income'.*label, age, income, city, n"):
        resolve(parse_mapping("x=incom"), open_table(people))


def test_all_other_numeric_columns(people: Path):
    """The star leaves out the columns that others name, and text."""
    mapping = resolve(parse_mapping("y=label,x=*"), open_table(people))
    assert mapping[1] == Assignment("x", ("age", "income", "n"), True)
    with pytest.raises(TableError, match="no numeric column is left for x="):
        resolve(parse_mapping("y=label,z=age+income+n,x=*"), open_table(people))


def test_mapping_by_name(people: Path):
    """Without a mapping, columns go to the arguments of their names, and the rest to the one argument left."""
    table = open_table(people)
    assert format_mapping(mapping_by_name(table, ["x"], ["label", "scale"])) == "label=label,x=*"
    with pytest.raises(TableError, match="not clear which columns make the arguments x, z.*--rows x=label"):
        mapping_by_name(table, ["x", "z"], ["label"])
