"""Reading and writing: tables of rows, checkpoints."""
