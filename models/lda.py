"""Latent Dirichlet allocation with the words as rows: topic ~ Categorical(theta[document]), word from the topic.

The weights of the topics in the documents are a latent that all rows share, so that a row has one discrete latent of
its own.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from models import Array, Simulation


def model(document: Array, word: Array, documents: int = 20, words: int = 30, topics: int = 3) -> None:
    """Latent Dirichlet allocation.

    Args:
        document: number of the document of each word, (rows,).
        word: number of the word in the vocabulary, (rows,).
        documents: number of documents.
        words: size of the vocabulary.
        topics: number of topics.
    """
    theta: Any = numpyro.sample("theta", dist.Dirichlet(0.5 * jnp.ones(topics)).expand([documents]).to_event(1))
    phi: Any = numpyro.sample("phi", dist.Dirichlet(0.1 * jnp.ones(words)).expand([topics]).to_event(1))
    with numpyro.plate("rows", word.shape[0]):
        chances: Any = dist.Categorical(theta[document])
        topic: Any = numpyro.sample("topic", chances, infer={"enumerate": "parallel"})
        numpyro.sample("word", dist.Categorical(phi[topic]), obs=word)


def simulate(rng_key: jax.Array, num_rows: int, documents: int = 20, words: int = 30, topics: int = 3) -> Simulation:
    """Draw topics that share few words, and documents in which one topic prevails.

    Args:
        rng_key: key of the draws.
        num_rows: number of words in all documents.
        documents: number of documents.
        words: size of the vocabulary.
        topics: number of topics.

    Returns:
        Data document and word (num_rows,), documents, words and topics; truth theta (documents, topics), phi
        (topics, words) and topic (num_rows,).
    """
    key_theta, key_phi, key_topic, key_word = jax.random.split(rng_key, 4)
    theta = jax.random.dirichlet(key_theta, 0.3 * jnp.ones(topics), (documents,))
    phi = jax.random.dirichlet(key_phi, 0.2 * jnp.ones(words), (topics,))
    document = jnp.arange(num_rows) % documents
    topic = jax.random.categorical(key_topic, jnp.log(theta[document]))
    word = jax.random.categorical(key_word, jnp.log(phi[topic]))
    rows = {"document": np.array(document), "word": np.array(word)}
    return Simulation(
        data={**rows, "documents": documents, "words": words, "topics": topics},
        truth={"theta": np.array(theta), "phi": np.array(phi), "topic": np.array(topic)},
    )
