"""Reading and writing: tables of rows, and checkpoints of learners.

Tables: `files` opens a data file, `csv_reader` reads comma-separated text, `mapping` says which columns make which
argument, `cells` turns cells into numbers, and `rows` turns a table into a model's arguments. `tables` defines what all
of them share. Checkpoints: `checkpoint` saves and loads a state, `fingerprint` says which model and learner the state
belongs to, and `archive` is the file itself.
"""
