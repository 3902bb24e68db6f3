"""Reading a jaxpr: how each value depends on θ, the smallest field, and the program before and behind it."""
