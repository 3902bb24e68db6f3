"""The commands and their options: names, defaults and help texts."""

import argparse

from adfpp._version import __version__

CHUNK = 4096  # rows of a file that are absorbed in one call: large enough that the call itself costs nothing
LIVE_CHUNK = 64  # the same for standard input; small, because a row waits until its chunk is complete
EVERY = 10_000  # rows between checkpoints
RUNS = ("adf", "ep", "laplace", "svi")
FAMILIES = ("full", "diagonal", "spherical")
JOBS = 4  # the default limit of simultaneous experiments, as each takes up to a gigabyte of memory


class UsageError(ValueError):
    """A command line with options that are wrong or do not fit together."""


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line. ``args.command`` is the name of the command."""
    whole = argparse.ArgumentParser(
        prog="adfpp", description="Online Bayesian inference for NumPyro models, from data files and streams."
    )
    whole.add_argument("--version", action="version", version=f"adfpp {__version__}")
    commands = whole.add_subparsers(required=True, metavar="COMMAND", dest="command")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        sub.add_argument("--traceback", action="store_true", help="show where an error arose")
        return sub

    def data_command(name: str, text: str) -> argparse.ArgumentParser:
        sub = command(name, text)
        _add_data(sub)
        _add_learner(sub)
        return sub

    data_command("explain", "print how adfpp understands the model")
    _add_stream(data_command("stream", "absorb the rows one after the other, and keep the state in a checkpoint"))
    _add_check(data_command("check", "estimate how far a posterior is off, without NUTS"))
    _add_compare(data_command("compare", "measure fast posteriors against NUTS"))
    _add_reproduce(command("reproduce", "compute the figures and tables of the papers again, beside theory"))
    return whole


def _add_data(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("model", metavar="MODEL", help="path.py:function, or a name from the folder models")
    text = "a .csv, .tsv, .parquet or .npz file, or - for CSV on standard input"
    sub.add_argument("--data", required=True, metavar="FILE", help=text)
    text = "the columns of each argument: y=label,x=age+income,g=city:code"
    sub.add_argument("--rows", metavar="MAPPING", help=text)
    text = "the categories of a :code column, in order"
    sub.add_argument("--categories", action="append", default=[], metavar="COLUMN=A,B,…", help=text)
    text = "constant arguments; count(g) is the number of categories of g"
    sub.add_argument("--set", action="append", default=[], metavar="NAME=VALUE,…", help=text)


def _add_learner(sub: argparse.ArgumentParser) -> None:
    text = "full, diagonal or spherical: the shape of the Gaussian (full); or by latent: precision=gamma,w=full"
    sub.add_argument("--family", metavar="FAMILY", help=text)
    moments = ("auto", "accurate", "quadrature", "montecarlo")
    sub.add_argument("--moments", choices=moments, help="how integrals are computed (auto)")
    text = "random-walk=VARIANCE, discount=FORGETTING or ornstein-uhlenbeck=TIMESCALE"
    sub.add_argument("--dynamics", metavar="NAME=NUMBER", help=text)
    sub.add_argument("--float32", action="store_true", help="compute in single precision")


def _add_seed(sub: argparse.ArgumentParser, text: str = "the seed of the random key (0)") -> None:
    sub.add_argument("--seed", type=int, default=0, help=text)


def _add_stream(sub: argparse.ArgumentParser) -> None:
    text = "where to keep the state; a later call with the same file continues from it"
    sub.add_argument("--checkpoint", metavar="FILE", help=text)
    # without a default here, because a checkpoint keeps its seed
    sub.add_argument("--seed", type=int, help="the seed of the random key that is kept in the state (0)")
    text = f"rows that are absorbed at a time ({CHUNK}; from standard input {LIVE_CHUNK})"
    sub.add_argument("--chunk", type=int, metavar="ROWS", help=text)
    sub.add_argument("--every", type=int, metavar="ROWS", help=f"rows between checkpoints ({EVERY})")
    text = "absorb all rows of the file again, although the checkpoint has some of them"
    sub.add_argument("--from-start", action="store_true", help=text)
    sub.add_argument("--out", metavar="FOLDER", help="write summary.csv and posterior.nc there")


def _add_check(sub: argparse.ArgumentParser) -> None:
    text = "expectation propagation: visit the rows again until it converges, rather than once"
    sub.add_argument("--ep", action="store_true", help=text)
    text = "absorb the rows in random order (EP does so in any case)"
    sub.add_argument("--shuffle", action="store_true", help=text)
    _add_seed(sub)


def _add_compare(sub: argparse.ArgumentParser) -> None:
    text = f"the methods to run, from {', '.join(RUNS)} (adf,ep)"
    sub.add_argument("--runs", default="adf,ep", metavar="NAME,…", help=text)
    text = "the reference (auto: nuts, or with discrete latents enumeration or gibbs)"
    sub.add_argument("--reference", choices=("auto", "nuts", "enumeration", "gibbs"), default="auto", help=text)
    sub.add_argument("--samples", type=int, default=4000, help="total number of draws (4000)")
    sub.add_argument("--warmup", type=int, default=1000, help="warm-up steps of each chain (1000)")
    sub.add_argument("--chains", type=int, default=4, help="number of chains (4)")
    _add_seed(sub)
    text = "write overview.csv, parameters.csv, report.html and a netCDF file for each run there"
    sub.add_argument("--out", metavar="FOLDER", help=text)


def _add_reproduce(sub: argparse.ArgumentParser) -> None:
    text = "a paper or one of its experiments, as --list shows them"
    sub.add_argument("names", nargs="*", metavar="NAME", help=text)
    sub.add_argument("--all", action="store_true", help="run all experiments of all papers")
    sub.add_argument("--list", action="store_true", help="print the names of all papers and experiments")
    sub.add_argument("--quick", action="store_true", help="fewer and shorter runs: seconds, not minutes")
    _add_seed(sub, "the seed of all random keys (0)")
    text = f"experiments at a time (1; with --quick one for each core, up to {JOBS}); it does not change the results"
    sub.add_argument("--jobs", type=int, metavar="N", help=text)
    text = "write a table, the numbers and a picture of each experiment there"
    sub.add_argument("--out", metavar="FOLDER", help=text)
    text = "fill in the marked tables of the pages there, and keep the records in its folder results"
    sub.add_argument("--pages", metavar="FOLDER", help=text)
