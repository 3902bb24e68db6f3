"""The algorithms, curves and tables of the papers that adfpp comes from.

`baselines` has their online algorithms, `theory` their learning curves and laws, and `laboratory` the experiments that
make their figures and tables again. Nothing else in adfpp imports this package, except ``adfpp reproduce``.
"""
