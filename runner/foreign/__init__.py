"""Benchmarks a program that is not the suite's: any command line in any image, its unmodified log read through a dialect.

`flow` looks and runs, `plan` and `grade` are pure.
"""
