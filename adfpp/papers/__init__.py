"""The algorithms, curves and tables of the papers on which adfpp is based.

`baselines` has their online algorithms, `theory` their learning curves and laws, and `laboratory` the experiments that
compute their figures and tables again. Nothing else in adfpp imports this package, except ``adfpp reproduce``.
"""
