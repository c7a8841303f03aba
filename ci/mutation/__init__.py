"""Mutation testing of pebs/model by mutant schemata: one build holds every mutant, a number chooses one."""
