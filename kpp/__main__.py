"""`python -m kpp` is the command `kpp`, for an environment whose scripts are not on the path."""

from kpp.cli import main

if __name__ == "__main__":
    main(prog_name="python -m kpp")
