"""Checkpoints: the state comes back bit for bit, and only to the model and layout that it belongs to."""

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import adfpp
from adfpp.io import checkpoint
from adfpp.io.checkpoint import CheckpointError
from adfpp.io.fingerprint import probes as probes_of
from adfpp.learn.adf import ADFState
from adfpp.learn.ep import EPState
from tests.products import Pair, beta_bernoulli

GROUPS, ROWS = 3, 24


def model(x: Any, group: Any, n_groups: int, y: Any = None) -> None:
    """A field of one number, so that it compiles quickly."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("groups", n_groups):
        z: Any = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w + z[group], 1.0), obs=y)


def base(x: Any, y: Any, noise: float = 1.0, prior: Any = None, name: str = "w") -> None:
    w = numpyro.sample(name, dist.Normal(0, 2.5) if prior is None else prior)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(w * x, noise), obs=y)


def line(x: Any, y: Any = None, noise: float = 1.0) -> None:
    base(x, y, noise)


LINE = adfpp.ADF(line)


def data(start: int = 0, stop: int = ROWS) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    x, group = rng.normal(size=(ROWS, 2)), rng.integers(0, GROUPS, ROWS)
    y = x @ [1.0, -1.0] + 0.5 * group + rng.normal(size=ROWS)
    return {"x": x[start:stop], "group": group[start:stop], "y": y[start:stop], "n_groups": GROUPS}


def points(count: int = 8, dtype: Any = float) -> dict[str, Any]:
    rng = np.random.default_rng(6)
    return {"x": rng.normal(size=count).astype(dtype), "y": rng.normal(size=count).astype(dtype)}


def bits(state: Any) -> list[tuple[Any, ...]]:
    out = []
    for leaf in jax.tree.leaves(state):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            out.append(str(jax.random.key_impl(leaf)))
            leaf = jax.random.key_data(leaf)
        out.append((leaf.shape, str(leaf.dtype), np.asarray(leaf).tobytes()))
    return out


def saved_line(path: Path, adf: adfpp.ADF | None = None, **kwargs: Any) -> ADFState:
    adf = adf or LINE
    state = adf.init(jax.random.key(0), **points(), **kwargs)
    state, _ = adf.update(state, **points(), **kwargs)
    adfpp.save(path, adf, state, rows=8)
    return state


@pytest.mark.parametrize(
    ("family", "dynamics"),
    [
        ("full", None),
        ("spherical", adfpp.Discount(0.99)),
        ("full", adfpp.RandomWalk({"w": 1e-3})),
        ("diagonal", adfpp.RandomWalk(1e-3)),
        ("full", adfpp.OrnsteinUhlenbeck(50.0)),
    ],
)
def test_goes_on_to_the_same_bits(family: str, dynamics: Any, tmp_path: Path):
    """A stream that was saved and loaded half-way ends as one that never stopped; whatever the learner."""
    adf = adfpp.ADF(model, family=family, dynamics=dynamics)
    middle, _ = adf.update(adf.init(jax.random.key(3), **data()), **data(0, 8))
    adfpp.save(tmp_path / "c", adf, middle)
    unbroken, info = adf.update(middle, **data(8, 16))

    other = adfpp.ADF(model, family=family, dynamics=dynamics)
    restored = adfpp.load(tmp_path / "c", other, **data(23)).state
    assert type(restored) is type(middle)
    assert bits(restored) == bits(middle)
    resumed, again = other.update(restored, **data(8, 16))
    assert bits(resumed) == bits(unbroken)
    assert bits(again) == bits(info)
    assert int(restored.rows) == 8


@pytest.mark.parametrize(
    "key", [jax.random.key(7), jax.random.key(7, impl="rbg"), jax.random.PRNGKey(7)], ids=["typed", "rbg", "raw"]
)
def test_keys_come_back(key: jax.Array, tmp_path: Path):
    """Typed PRNG keys, of any implementation, and raw ones."""
    adfpp.save(tmp_path / "c", LINE, LINE.init(key, **points()))
    restored = adfpp.load(tmp_path / "c", LINE, **points()).state
    assert restored.rng_key.dtype == key.dtype
    assert np.array_equal(jax.random.normal(restored.rng_key, (3,)), jax.random.normal(key, (3,)))


def test_posterior_as_prior_and_results_can_be_saved(tmp_path: Path):
    """A state that began elsewhere than at the model's prior, handed over inside a result."""
    adf = adfpp.ADF(line, dynamics=adfpp.OrnsteinUhlenbeck(50.0))
    result = adf.run(jax.random.key(0), **points(), prior={"w": dist.Normal(4, 0.5)}, progress_bar=False)
    adfpp.save(tmp_path / "c", adf, result)
    restored = adfpp.load(tmp_path / "c", adfpp.ADF(line, dynamics=adfpp.OrnsteinUhlenbeck(50.0)), **points())
    assert bits(restored.state) == bits(result.state)
    assert restored.state.setup.mean == pytest.approx(4.0)


def test_file_is_a_plain_archive(tmp_path: Path):
    """NumPy alone reads the arrays, without pickle, and the header is JSON."""
    state = saved_line(tmp_path / "c")
    with np.load(tmp_path / "c", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays.pop("header").tobytes())
    assert header["format_version"] == 2 and header["adfpp"] == adfpp.__version__
    names = [entry["name"] for entry in header["state"]]
    assert np.array_equal(arrays[f"state{names.index('.belief.mean')}"], state.belief.mean)
    assert all(a.dtype != object for a in arrays.values())


def test_progress_comes_back(tmp_path: Path):
    """Numbers exactly, arrays with their dtype, nested, beside a state; and without a model."""
    progress = {
        "rows": 12345678901234567,
        "score": 0.1 + 0.2,
        "word": "naïve",
        "none": None,
        "yes": True,
        "lists": [[1, 2.5], {"deep": {"array": np.arange(3, dtype=np.int16)}}],
        "empty": {},
    }
    adfpp.save(tmp_path / "c", LINE, LINE.init(jax.random.key(0), **points()), **progress)
    for kept in (
        checkpoint.peek(tmp_path / "c"),
        adfpp.load(tmp_path / "c", LINE, **points()).progress,
    ):
        deep = kept["lists"][1]["deep"]
        assert np.array_equal(deep["array"], [0, 1, 2]) and deep["array"].dtype == np.int16
        assert kept | {"lists": None} == progress | {"lists": None}
        assert kept["lists"][0] == [1, 2.5] and kept["yes"] is True


def test_what_cannot_be_kept_is_refused(tmp_path: Path):
    """An object in the progress is an error, and the file that was there stays."""
    state = saved_line(tmp_path / "c")
    before = (tmp_path / "c").read_bytes()
    with pytest.raises(TypeError, match="keeps numbers"):
        adfpp.save(tmp_path / "c", LINE, state, thing=object())
    assert (tmp_path / "c").read_bytes() == before


@pytest.mark.parametrize("failing", ["writing", "fsync", "replace"])
def test_writing_is_all_or_nothing(failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A disk that fails leaves the old file whole and nothing beside it."""
    state = saved_line(tmp_path / "c")
    before = (tmp_path / "c").read_bytes()

    def fails(*args: Any, **kwargs: Any) -> None:
        if failing == "writing":
            args[0].write(before[: len(before) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(*((np, "savez") if failing == "writing" else (os, failing)), fails)
    with pytest.raises(OSError, match="no space left"):
        adfpp.save(tmp_path / "c", LINE, state, rows=99)
    monkeypatch.undo()
    assert (tmp_path / "c").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    assert checkpoint.peek(tmp_path / "c") == {"rows": 8}


def test_a_link_is_followed(tmp_path: Path):
    """A checkpoint behind a symbolic link is replaced where it lies."""
    (tmp_path / "far").mkdir()
    (tmp_path / "c").symlink_to(tmp_path / "far" / "c")
    saved_line(tmp_path / "c")
    assert (tmp_path / "c").is_symlink()
    assert checkpoint.peek(tmp_path / "far" / "c") == {"rows": 8}


def test_damaged_files_are_refused(tmp_path: Path):
    """Cut anywhere, or with one byte changed in an array: a clear error, and the file is left alone."""
    saved_line(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    place = whole.index(b"state0.npy") + 10 + 128 + 16  # within the array's own bytes or header
    damaged = [whole[:4], whole[:100], whole[: len(whole) // 2], whole[:-1], whole[:-30]]
    for at in (place, whole.index(b'"fingerprint"')):
        damaged.append(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for content in damaged:
        (tmp_path / "c").write_bytes(content)
        with pytest.raises(CheckpointError, match="is damaged or cut short.*left as it is"):
            adfpp.load(tmp_path / "c", LINE, **points())
        assert (tmp_path / "c").read_bytes() == content


def foreign_files() -> dict[str, bytes]:
    def written(write: Callable[[Any], None]) -> bytes:
        file = io.BytesIO()
        write(file)
        return file.getvalue()

    return {
        "empty": b"",
        "text": b"a,b\n1,2\n",
        "pickle": pickle.dumps({"state": 1}),
        "npy": written(lambda f: np.save(f, np.zeros(3))),
        "npz": written(lambda f: np.savez(f, x=np.zeros(3))),
        "npz with a header": written(lambda f: np.savez(f, header=np.frombuffer(b'{"format": "?"}', np.uint8))),
        "npz with objects": written(lambda f: np.savez(f, header=np.array([{}], object))),
        "npz with an odd header": written(lambda f: np.savez(f, header=np.frombuffer(b"[1]", np.uint8))),
    }


@pytest.mark.parametrize("kind", foreign_files())
def test_foreign_files_are_refused(kind: str, tmp_path: Path):
    """Whatever else the file is, it is not taken for a checkpoint and not touched."""
    content = foreign_files()[kind]
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(CheckpointError, match="checkpoint of adfpp|damaged"):
        checkpoint.peek(tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == content


def test_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        checkpoint.peek(tmp_path / "c")


def test_newer_format_is_refused(tmp_path: Path):
    """A file of a later version names both versions."""
    saved_line(tmp_path / "c")
    with np.load(tmp_path / "c") as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].tobytes()) | {"format_version": 3, "adfpp": "9.1"}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with (tmp_path / "c").open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    with pytest.raises(CheckpointError, match="adfpp 9.1 in format 3.*Install a newer adfpp"):
        adfpp.load(tmp_path / "c", LINE, **points())


def centred(group: Any, n_groups: int, y: Any = None) -> None:
    """A prior that depends on another latent: its factors have site approximations too."""
    tau: Any = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("groups", n_groups):
        u: Any = numpyro.sample("u", dist.Normal(0, tau))
    with numpyro.plate("rows", group.shape[0]):
        numpyro.sample("y", dist.Normal(u[group], 1.0), obs=y)


def grouped(start: int = 0, stop: int = ROWS) -> dict[str, Any]:
    return {k: v for k, v in data(start, stop).items() if k != "x"}


CENTRED = adfpp.ADF(centred)


def rewritten(path: Path, **changes: Any) -> None:
    """The same file with something else in its header, and nothing that the first format did not have."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["header"].tobytes()) | changes
    header["fingerprint"].pop("learner")
    kept = [i for i, entry in enumerate(header["state"]) if ".priors" not in entry["name"]]
    header["state"] = [header["state"][i] for i in kept]
    states = {f"state{j}": arrays[f"state{i}"] for j, i in enumerate(kept)}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **states)


def test_the_first_format_is_read_where_it_can_be(tmp_path: Path):
    """It kept no site approximations of coupled priors: a model with such priors is refused, with the reason."""
    state = saved_line(tmp_path / "c")
    rewritten(tmp_path / "c", format_version=1, adfpp="0.1")
    assert bits(adfpp.load(tmp_path / "c", adfpp.ADF(line), **points()).state) == bits(state)
    with pytest.raises(CheckpointError, match="learner: type is ADF in the checkpoint and EP here"):
        adfpp.load(tmp_path / "c", adfpp.EP(line), **points())
    adfpp.save(tmp_path / "d", CENTRED, CENTRED.init(jax.random.key(0), **grouped()))
    rewritten(tmp_path / "d", format_version=1, adfpp="0.1")
    with pytest.raises(CheckpointError, match="by adfpp 0.1 in format 1, which did not keep.*Absorb the rows"):
        adfpp.load(tmp_path / "d", CENTRED, **grouped())


@pytest.mark.slow
def test_sites_of_coupled_priors_come_back(tmp_path: Path):
    """A stream whose group scale learns goes on to the same bits."""
    middle, _ = CENTRED.update(CENTRED.init(jax.random.key(3), **grouped()), **grouped(0, 8))
    assert middle.priors
    adfpp.save(tmp_path / "c", CENTRED, middle)
    other = adfpp.ADF(centred)
    restored = adfpp.load(tmp_path / "c", other, **grouped()).state
    assert bits(restored) == bits(middle) and set(restored.priors) == set(middle.priors)
    assert bits(other.update(restored, **grouped(8, 16))) == bits(CENTRED.update(middle, **grouped(8, 16)))


@pytest.mark.parametrize(
    ("family", "made_of"),
    [("full", "rows"), ("diagonal", "rows"), pytest.param("full", "groups", marks=pytest.mark.slow)],
)
def test_ep_comes_back_and_has_converged(family: str, made_of: str, tmp_path: Path):
    """Belief, the site approximations of rows and priors, and the base, bit for bit; one sweep finds nothing to do."""
    of, given = (centred, grouped()) if made_of == "groups" else (model, data())
    ep = adfpp.EP(of, family=family, max_sweeps=50)
    result = ep.run(jax.random.key(0), **given, progress_bar=False)
    assert result.info.converged and bool(result.state.priors) == (made_of == "groups")
    adfpp.save(tmp_path / "c", ep, result, note="here")
    other = adfpp.EP(of, family=family, max_sweeps=20, tol=2e-3)  # how it gets there may change
    loaded = adfpp.load(tmp_path / "c", other, **given)
    assert type(loaded.state) is EPState and loaded.progress == {"note": "here"}
    assert bits(loaded.state) == bits(result.state)
    assert all(isinstance(a, np.ndarray) for a in loaded.state.sites)
    again = other.run(jax.random.key(1), **given, state=loaded.state, progress_bar=False)
    assert again.info.converged and again.info.sweeps == 1
    assert again.log_evidence == pytest.approx(result.log_evidence, abs=1e-2)


def test_ep_is_not_taken_for_another_learner_or_other_rows(tmp_path: Path):
    ep = adfpp.EP(line)
    adfpp.save(tmp_path / "c", ep, ep.init(jax.random.key(0), **points()))
    with pytest.raises(CheckpointError, match="learner: type is EP in the checkpoint and ADF here"):
        adfpp.load(tmp_path / "c", adfpp.ADF(line), **points())
    with pytest.raises(CheckpointError, match="learner: power is 1.0 in the checkpoint and 0.5 here"):
        adfpp.load(tmp_path / "c", adfpp.EP(line, power=0.5), **points())
    with pytest.raises(
        CheckpointError,
        match="learner: kind of site approximations is of each row in the checkpoint and tied across rows here",
    ):
        adfpp.load(tmp_path / "c", adfpp.EP(line, schedule="stochastic"), **points())
    with pytest.raises(
        CheckpointError, match="site approximations of 8 rows, and 5 rows are given here: pass all the rows"
    ):
        adfpp.load(tmp_path / "c", adfpp.EP(line), **points(5))


WRITTEN = Path(__file__).parent / "written"  # by adfpp 0.1 in format 2, after the rows COINS of the model coin


def coin(y: Any, strength: float = 1.0) -> None:
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Bernoulli(p), obs=y)


COINS = np.array([0, 1, 1, 0])


@pytest.mark.parametrize(
    ("file", "learner"),
    [
        ("adf_full.ckpt", adfpp.ADF(coin, dynamics=adfpp.Discount(0.99))),
        ("ep_product.ckpt", adfpp.EP(coin, family={"p": "beta"})),
    ],
)
def test_files_that_an_earlier_version_wrote_can_be_read(file: str, learner: Any, tmp_path: Path):
    """The state goes on, and what is written again has the words of the same format."""
    state, progress = adfpp.load(WRITTEN / file, learner, COINS)
    assert progress["rows"] == 4 and int(state.rows) == 4
    if "product" in file:  # conjugate: Beta(2 + 2, 3 + 2)
        assert learner.get_posterior(state).mean()["p"] == pytest.approx(4 / 9, rel=1e-6)
    else:
        assert np.array_equal(state.belief.mean, progress["belief"])
    adfpp.save(tmp_path / file, learner, state, **progress)
    headers = []
    for path in (WRITTEN / file, tmp_path / file):
        with np.load(path) as archive:
            headers.append(json.loads(archive["header"].tobytes()))
    old, new = headers
    assert {k: v for k, v in new.items() if k not in ("adfpp", "probes")} == {
        k: v for k, v in old.items() if k not in ("adfpp", "probes")
    }
    assert set(new["probes"]) == set(old["probes"])


def test_a_learner_of_a_stranger_can_be_saved(tmp_path: Path):
    """What is asked of a learner are two methods; its class need not be one of ours."""

    class Stranger:
        init, get_posterior = LINE.init, LINE.get_posterior

    state = LINE.init(jax.random.key(0), **points())
    adfpp.save(tmp_path / "c", Stranger(), state)
    assert bits(adfpp.load(tmp_path / "c", Stranger(), **points()).state) == bits(state)
    with pytest.raises(CheckpointError, match="learner: type is Stranger in the checkpoint and ADF here"):
        adfpp.load(tmp_path / "c", LINE, **points())


def tight_prior(x: Any, y: Any = None) -> None:
    base(x, y, prior=dist.Normal(0, 2.4))


def other_noise(x: Any, y: Any = None) -> None:
    base(x, y, noise=1.01)


def positive(x: Any, y: Any = None) -> None:
    base(x, y, prior=dist.HalfNormal(2.5))


def renamed(x: Any, y: Any = None) -> None:
    base(x, y, name="v")


def plain(x: Any, y: Any = None) -> None:
    base(x, y)


def two(x: Any, y: Any = None) -> None:
    w: Any = numpyro.sample("w", dist.Normal(0, 2.5).expand([2]))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(w[0] * x, 1.0), obs=y)


def twice(x: Any, y: Any = None) -> None:
    w = numpyro.sample("w", dist.Normal(0, 2.5))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(w * x, 1.0), obs=y)
        numpyro.sample("y2", dist.Normal(w * x, 1.0), obs=y)


@pytest.mark.parametrize(
    ("adf", "kwargs", "message"),
    [
        (adfpp.ADF(tight_prior), {}, "log prior of latent 'w': the model gives other numbers"),
        (adfpp.ADF(other_noise), {}, "log-likelihood of observation 'y': the model gives other numbers"),
        (adfpp.ADF(positive), {}, "transform is IdentityTransform in the checkpoint and ExpTransform here"),
        (adfpp.ADF(renamed), {}, "latent 'w' is only in the checkpoint; latent 'v' is only here"),
        (adfpp.ADF(two), {}, r"latent 'w': shape is \(\) in the checkpoint and \(2,\) here"),
        (adfpp.ADF(twice), {}, "factor 1 of a row is only here"),
        (adfpp.ADF(plain, family="diagonal"), {}, "family: type is Full in the checkpoint and Diagonal here"),
        (adfpp.ADF(plain, dynamics=adfpp.Discount(0.9)), {}, "dynamics: type is Static"),
        (adfpp.ADF(plain), {"y": np.zeros(8, int)}, "argument 'y': dtype is float64 in the checkpoint and int"),
    ],
    ids=["prior", "likelihood", "transform", "name", "shape", "factors", "family", "dynamics", "dtype"],
)
def test_mismatch_is_refused(adf: adfpp.ADF, kwargs: dict[str, Any], message: str, tmp_path: Path):
    """Each thing that the state depends on is checked, and the message names it."""
    saved_line(tmp_path / "c", adfpp.ADF(plain))
    before = (tmp_path / "c").read_bytes()
    with pytest.raises(CheckpointError, match=message) as caught:
        adfpp.load(tmp_path / "c", adf, **points() | kwargs)
    assert "left as it is" in str(caught.value) and "prior=" in str(caught.value)
    assert (tmp_path / "c").read_bytes() == before


def test_numbers_of_options_are_compared(tmp_path: Path):
    """A constant of the model and a number of the dynamics are part of what the state belongs to."""
    saved_line(tmp_path / "c", adfpp.ADF(line, dynamics=adfpp.Discount(0.99)), noise=2.0)
    adf = adfpp.ADF(line, dynamics=adfpp.Discount(0.98))
    with pytest.raises(CheckpointError, match="forgetting is 0.99 in the checkpoint and 0.98 here") as caught:
        adfpp.load(tmp_path / "c", adf, **points(), noise=3.0)
    assert "argument 'noise': value is 2.0 in the checkpoint and 3.0 here" in str(caught.value)


def test_large_noise_matrices_are_digested(tmp_path: Path):
    """A covariance of many numbers is distinguished by one of them, without being written out twice."""
    q = 1e-3 * np.eye(9)

    def wide(x: Any, y: Any = None) -> None:
        w: Any = numpyro.sample("w", dist.Normal(0, 1).expand([9]).to_event(1))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("y", dist.Normal(x * w.sum(), 1.0), obs=y)

    saved_line(tmp_path / "c", adfpp.ADF(wide, dynamics=adfpp.RandomWalk(q)))
    adfpp.load(tmp_path / "c", adfpp.ADF(wide, dynamics=adfpp.RandomWalk(q.copy())), **points())
    q[4, 4] *= 1.001
    with pytest.raises(CheckpointError, match="dynamics: variance"):
        adfpp.load(tmp_path / "c", adfpp.ADF(wide, dynamics=adfpp.RandomWalk(q)), **points())


def test_supports_are_distinguished_by_their_bounds(tmp_path: Path):
    """Two intervals have transforms of one name; the values at the probes tell them apart."""

    def between(high: float) -> Callable[..., None]:
        def bounded(x: Any, y: Any = None) -> None:
            base(x, y, prior=dist.Uniform(0.0, high))

        return bounded

    saved_line(tmp_path / "c", adfpp.ADF(between(2.0)))
    with pytest.raises(CheckpointError, match="values of latent 'w'"):
        adfpp.load(tmp_path / "c", adfpp.ADF(between(3.0)), **points())


def test_precision_is_compared_and_kept(tmp_path: Path, float32: None):
    """A float32 state comes back in float32; under float64 the message says what to set."""
    adf = adfpp.ADF(line)
    state = saved_line(tmp_path / "c", adf)
    restored = adfpp.load(tmp_path / "c", adfpp.ADF(line), **points()).state
    assert bits(restored) == bits(state) and restored.belief.mean.dtype == np.float32
    with (
        jax.enable_x64(True),
        pytest.raises(CheckpointError, match="precision is float32 in the checkpoint and float64"),
    ):
        adfpp.load(tmp_path / "c", adfpp.ADF(line), **points())


@pytest.mark.slow
def test_checkpoints_of_products(
    ising_learners: Any, ising_results: Any, ising: Any, pair: Pair, tmp_path: Path
) -> None:
    for name in ("adf", "ep"):
        checkpoint.save(tmp_path / name, ising_learners[name], ising_results[name])
        state = checkpoint.load(tmp_path / name, ising_learners[name], **ising).state
        for a, b in zip(jax.tree.leaves(state.belief), jax.tree.leaves(ising_results[name].state.belief), strict=True):
            np.testing.assert_array_equal(a, b)
    checkpoint.save(tmp_path / "pair", pair.learner, pair.result)
    state = checkpoint.load(tmp_path / "pair", pair.learner, **pair.data).state
    for a, b in zip(jax.tree.leaves(state.belief), jax.tree.leaves(pair.result.state.belief), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_checkpoints_of_other_products_are_refused(coins: Any, beta: Any, tmp_path: Path) -> None:
    program = beta.posterior.program
    probes = probes_of(program)["values of site 'p'"]
    assert all(0 < value < 1 for value in probes)  # where its prior is finite
    path = tmp_path / "beta"
    checkpoint.save(path, beta.run.learner, beta)
    state = checkpoint.load(path, adfpp.ADF(beta_bernoulli, family={"p": "beta"}), coins).state
    np.testing.assert_array_equal(state.belief.parts[0], beta.state.belief.parts[0])
    with pytest.raises(CheckpointError, match="belongs to another learner.*family"):
        checkpoint.load(path, adfpp.ADF(beta_bernoulli), coins)

    def other_prior(y: Any) -> None:
        with numpyro.handlers.substitute(data={}):
            p: Any = numpyro.sample("p", dist.Beta(2.0, 3.5))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Bernoulli(p), obs=y)

    with pytest.raises(CheckpointError, match="log prior of latent 'p'"):
        checkpoint.load(path, adfpp.ADF(other_prior, family={"p": "beta"}), coins)

    def rate(y: Any) -> None:
        rate: Any = numpyro.sample("rate", dist.Gamma(3.0, 3.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Poisson(rate), obs=y)

    gamma, inverse = (adfpp.ADF(rate, family={"rate": name}) for name in ("gamma", "inverse_gamma"))
    checkpoint.save(path, gamma, gamma.init(jax.random.key(0), coins))
    with pytest.raises(
        CheckpointError, match="'gamma' in the checkpoint and 'inverse_gamma' here|gamma.*inverse_gamma"
    ):
        checkpoint.load(path, inverse, coins)
