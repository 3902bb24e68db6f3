"""Writes records into separate files and into the marked blocks of the documentation's pages.

A block of a page is the text between ``<!-- reproduce: NAME -->`` and ``<!-- end -->``. It is written from the record
of that name, so that no figure on a page is typed by hand.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from adfpp.papers.laboratory.picture import save
from adfpp.papers.laboratory.record import Record

__all__ = ["filled", "read_records", "write_record"]

BLOCK = re.compile(r"(<!-- reproduce: (?P<name>[\w-]+) -->\n)(?P<inside>.*?)(<!-- end -->)", re.DOTALL)


def write_record(record: Record, folder: Path) -> list[Path]:
    """Writes NAME.json, NAME.md and, if the record has panels and Matplotlib is installed, NAME.png.

    Returns:
        The paths of the files.
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
    """The records in a folder, by name."""
    records = [Record.from_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {record.name: record for record in records}


def filled(page: str, records: Mapping[str, Record], pictures: str) -> str:
    """A page with the blocks of these records written again; other blocks do not change.

    Args:
        page: The text of the page.
        records: The records, by name.
        pictures: The folder of the pictures, relative to the page.
    """

    def block(match: re.Match[str]) -> str:
        record = records.get(match["name"])
        if record is None:
            return match[0]
        picture = f"\n![{record.title}]({pictures}/{record.name}.png)\n" if record.panels else ""
        return f"{match[1]}\n{record.markdown()}\n{picture}\n{match[4]}"

    return BLOCK.sub(block, page)
