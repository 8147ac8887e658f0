"""Run the program with `python -m shortlist.cli`."""

from shortlist.cli import main

if __name__ == "__main__":
    main()
