"""Where records go: files of their own, and the marked blocks of the pages that tell of them.

A block of a page stands between ``<!-- reproduce: NAME -->`` and ``<!-- end -->``. All that is between is written from
the record, so that no figure on a page has been typed.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from adfpp.papers.laboratory.picture import save
from adfpp.papers.laboratory.record import Record

__all__ = ["filled", "read_records", "write_record"]

BLOCK = re.compile(r"(<!-- reproduce: (?P<name>[\w-]+) -->\n)(?P<inside>.*?)(<!-- end -->)", re.DOTALL)


def write_record(record: Record, folder: Path) -> list[Path]:
    """Writes NAME.json, NAME.md and, where there is something to draw and Matplotlib to draw it, NAME.png.

    Returns:
        The paths written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{record.name}.json", folder / f"{record.name}.md"]
    written[0].write_text(record.json(), encoding="utf-8")
    written[1].write_text(f"# {record.title}\n\n{record.source}\n\n{record.markdown()}\n", encoding="utf-8")
    if record.panels:
        try:
            written.append(save(record, folder / f"{record.name}.png"))
        except ModuleNotFoundError as error:
            if error.name != "matplotlib":
                raise
    return written


def read_records(folder: Path) -> dict[str, Record]:
    """The records kept in a folder, by name."""
    found = [Record.from_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {record.name: record for record in found}


def filled(page: str, records: Mapping[str, Record], pictures: str) -> str:
    """A page with the blocks of these records written anew; other blocks stay as they are.

    Args:
        page: Its text.
        records: By name.
        pictures: Where the pictures are, seen from the page.
    """

    def block(match: re.Match[str]) -> str:
        record = records.get(match["name"])
        if record is None:
            return match[0]
        picture = f"\n![{record.title}]({pictures}/{record.name}.png)\n" if record.panels else ""
        return f"{match[1]}\n{record.markdown()}\n{picture}\n{match[4]}"

    return BLOCK.sub(block, page)
