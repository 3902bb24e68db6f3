"""The command line, described in docs/command-line.md.

`main` reads the words (`options`) and runs one of the `commands`. These make a learner, its rows and its constants of
the words (`inputs`); `stream` reads a stream into a checkpoint; `signals` and `progress` are Ctrl-C and progress bars.
JAX and NumPyro are imported when a command runs, so that these modules cost nothing where only help is printed.
"""

from adfpp.cli.main import main
from adfpp.cli.options import UsageError

__all__ = ["UsageError", "main"]
