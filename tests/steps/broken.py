"""A module that can not be imported."""

RATIO = 1 / 0
