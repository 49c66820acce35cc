"""Recipes around the package `tupe_fairseq`; `examples.shared` holds what several of them use.

Run a script as a module from the root of the repository: `python -m examples.glue.sweep`. In an
environment in which the repository is installed with `pip install -e`, as in `.venv`, its path
works as well, from any folder: `python PATH/examples/glue/sweep.py`.
"""
