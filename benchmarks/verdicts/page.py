from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "verdicts.md"


def page(records):
    return ""
