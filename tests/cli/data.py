"""What the tests of the command line share: rows, and a look into checkpoints that does not go through adfpp."""

import json
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).parents[2]
HEADER = "label,a,b,city\n"
STREAM = ("stream", "m.py", "--rows", "y=label,x=a+b", "--chunk", "16", "--every", "16", "--data")


def numbers() -> np.ndarray:
    """120 rows of a label and two features."""
    rng = np.random.default_rng(8)
    x = rng.normal(size=(120, 2)).round(3)
    y = (x @ [1.0, -2.0] + rng.normal(size=120)).round(3)
    return np.column_stack([y, x])


def lines(start: int, stop: int) -> str:
    """Some of these rows as CSV, each with a city."""
    rows = zip(range(start, stop), numbers()[start:stop], strict=True)
    return "".join(f"{y},{a},{b},{['Rome', 'Oslo', 'Bonn'][i % 3]}\n" for i, (y, a, b) in rows)


def arrays(path: str | Path) -> dict[str, bytes]:
    """The state in a checkpoint, as bytes."""
    with np.load(path, allow_pickle=False) as archive:
        return {n: archive[n].tobytes() for n in archive.files if n.startswith("state")}


def state_of(path: str | Path) -> dict[str, np.ndarray]:
    """The state in a checkpoint by name, read with NumPy alone."""
    with np.load(path, allow_pickle=False) as archive:
        names = [e["name"] for e in json.loads(archive["header"].tobytes())["state"]]
        return {name: archive[f"state{i}"] for i, name in enumerate(names)}
