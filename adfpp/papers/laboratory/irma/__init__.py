"""The incremental risk functional (2013): a curve learned row by row, compared with Bayes' rule on the same basis."""
