"""`python -m hai_flow.cli`: what `hai-flow` does, for a checkout."""

from hai_flow.cli import main

if __name__ == "__main__":
    main()
