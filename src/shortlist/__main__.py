"""Run the program with `python -m shortlist`."""

from shortlist.cli import main

if __name__ == "__main__":
    main()
