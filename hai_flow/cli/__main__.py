"""`python -m hai_flow.cli`: the command `hai-flow`, for a checkout."""

from hai_flow.cli import main

if __name__ == "__main__":
    main()
