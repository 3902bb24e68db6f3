"""Prints the lowest versions that pyproject.toml allows, as constraints for pip: ``numpy>=2.2`` becomes ``numpy==2.2``.

The tools of the tests have no lower bounds and are left alone, as is what only builds the package.
"""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
for requirement in [r for group in (project["dependencies"], *extras.values()) for r in group]:
    bound = re.fullmatch(r"([\w.-]+)(\[.*\])?>=([\w.]+)(,.*)?", requirement)
    if bound and bound[1] != "setuptools":
        print(f"{bound[1]}=={bound[3]}")
