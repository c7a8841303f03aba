"""`skidproof nightly`: one machine, every night. docs/nightly.md says what happens when.

`configuration` is what the file may say, `steps` the commands of a night, `night` runs them, `state` is what outlives a crash,
`recovery` reads what a dead run left, `lock` keeps a second night away, `status` tells people and Prometheus.
"""
