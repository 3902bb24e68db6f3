"""How far an answer is off: against NUTS, or from the learner's own evidence."""
