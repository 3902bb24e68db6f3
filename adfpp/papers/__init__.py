"""The algorithms, curves and tables of the papers that adfpp comes from."""
