"""Runs of random plans in a random world, from a seed. `python -m tests.sim --seed 7 --runs 1000`."""
