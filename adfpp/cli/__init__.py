"""The command line, described in docs/command-line.md.

`main` reads the options (`options`) and runs one of the `commands`. These make a learner, its rows and its constants
from the options (`inputs`); `stream` reads a stream into a checkpoint; `signals` handles Ctrl-C, and `progress` draws
progress bars. JAX and NumPyro are imported when a command runs, so that printing help is fast.
"""

from adfpp.cli.main import main
from adfpp.cli.options import UsageError

__all__ = ["UsageError", "main"]
