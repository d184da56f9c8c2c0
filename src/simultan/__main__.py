"""`python -m simultan` is the command `simultan`."""

from simultan.cli import main

if __name__ == "__main__":
    main()
