"""The entry point: runs a command, and turns errors and signals into messages and exit codes."""

import os
import signal
import sys
from collections.abc import Sequence

from adfpp.cli.options import parser

# XLA compiles a loop as one function if it reads and writes fewer bytes than this. JAX 0.12 does so by itself. With
# JAX 0.10 a loop over rows takes about twice as long to compile without it, and about 1.3 times as long to run.
WHOLE_LOOPS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: The words of the command line; None for those of the process.

    Returns:
        The exit code: 0 for success, 1 after an error, or 128 plus the number of the signal (130 for Ctrl-C).
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if argv is None and "xla_backend_extra_options" not in flags:  # the process is ours, and JAX has not been imported
        os.environ["XLA_FLAGS"] = f"{flags} {WHOLE_LOOPS}".strip()
    args = parser().parse_args(argv)
    try:
        from adfpp.cli import commands  # imports JAX and NumPyro, which --help and --version do not need

        return commands.COMMANDS[args.command](args)
    except KeyboardInterrupt:
        print("adfpp: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        if args.traceback:
            raise
        print(f"adfpp: {_message(error)}", file=sys.stderr)
        return 1


def _message(error: Exception) -> str:
    """An error in words. The messages of adfpp say what to do; for any other error the type is named."""
    text = str(error).strip()
    if not isinstance(error, ValueError | OSError):
        text = f"{type(error).__name__}: {text.rstrip('.')}. --traceback shows where it arose."
    if "must have integer" in text:  # JAX's message for an array of floats that is used as an index
        text += " An argument that is used as an index needs whole numbers: read its column as :int or :code."
    return text
