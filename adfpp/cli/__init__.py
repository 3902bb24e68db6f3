"""The command line, described in docs/command-line.md.

`commands` has the commands, `work` makes of words what they work on, `following` reads streams; `stopping` and
`talking` are signals and progress.
"""

from adfpp.cli.commands import main
from adfpp.cli.work import UsageError

__all__ = ["UsageError", "main"]
