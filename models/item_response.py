"""Item response (Rasch): P(y = 1) = 1 / (1 + exp(difficulty[item] − ability[person])), difficulty ~ Normal(mu, tau).

A row is one answer. The abilities are standard normal, which sets the scale; the mean and the spread of the
difficulties are learned.
"""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(person: Array, item: Array, n_persons: int, n_items: int, y: Array | None = None) -> None:
    """One-parameter logistic item-response model.

    Args:
        person: the person who answers, 0, ..., n_persons − 1, (rows,).
        item: the item that is answered, 0, ..., n_items − 1, (rows,).
        n_persons: number of persons.
        n_items: number of items.
        y: 1 for a right answer and 0 for a wrong one, (rows,), or None to predict them.
    """
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("persons", n_persons):
        ability = numpyro.sample("ability", dist.Normal(0, 1))
    with numpyro.plate("items", n_items):
        difficulty = numpyro.sample("difficulty", dist.Normal(mu, tau))
    with numpyro.plate("rows", person.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=ability[person] - difficulty[item]), obs=y)


def simulate(rng_key: jax.Array, num_rows: int, n_persons: int = 30, n_items: int = 12) -> Simulation:
    """Draw persons and items at random, mu with sd 1/2, and tau between 1/2 and 3/2.

    Args:
        rng_key: key of the draws.
        num_rows: number of rows.
        n_persons: number of persons.
        n_items: number of items.

    Returns:
        Data person (num_rows,), item (num_rows,), n_persons, n_items and y (num_rows,); truth mu (), tau (), ability
        (n_persons,) and difficulty (n_items,).
    """
    key_person, key_item, key_mu, key_tau, key_ability, key_difficulty, key_y = jax.random.split(rng_key, 7)
    person = jax.random.randint(key_person, (num_rows,), 0, n_persons)
    item = jax.random.randint(key_item, (num_rows,), 0, n_items)
    mu = 0.5 * jax.random.normal(key_mu)
    tau = jax.random.uniform(key_tau, minval=0.5, maxval=1.5)
    ability = jax.random.normal(key_ability, (n_persons,))
    difficulty = mu + tau * jax.random.normal(key_difficulty, (n_items,))
    y = jax.random.bernoulli(key_y, jax.nn.sigmoid(ability[person] - difficulty[item])).astype(int)
    return Simulation(
        data={
            "person": np.array(person),
            "item": np.array(item),
            "n_persons": n_persons,
            "n_items": n_items,
            "y": np.array(y),
        },
        truth={
            "mu": np.array(mu),
            "tau": np.array(tau),
            "ability": np.array(ability),
            "difficulty": np.array(difficulty),
        },
    )
