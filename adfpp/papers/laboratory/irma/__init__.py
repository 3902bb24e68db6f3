"""The incremental risk functional (2013): a curve learned from single rows, beside Bayes' rule on the same basis."""
