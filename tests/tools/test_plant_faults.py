"""The list of faults belongs to the code as it is, and a fault that is planted is taken away again."""

import ast

import pytest

from tests.tools.faults import FAULTS, Fault
from tests.tools.plant_faults import REPOSITORY, misplaced, planted


def test_each_text_occurs_once_and_each_test_file_exists() -> None:
    assert misplaced(REPOSITORY) == []


def test_names_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 30


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_another_program_that_can_be_read(fault: Fault) -> None:
    source = (REPOSITORY / fault.file).read_text()
    assert ast.dump(ast.parse(source.replace(fault.old, fault.new))) != ast.dump(ast.parse(source))


def test_a_fault_is_taken_away_again(tmp_path) -> None:
    fault = Fault("sign", "sign", "code.py", "a - b", "a + b", ())
    file = tmp_path / "code.py"
    file.write_text("c = a - b\n")
    with pytest.raises(KeyboardInterrupt), planted(fault, tmp_path):
        assert file.read_text() == "c = a + b\n"
        raise KeyboardInterrupt
    assert file.read_text() == "c = a - b\n"
