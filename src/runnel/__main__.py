"""`python -m runnel`"""

from runnel.cli.main import main

if __name__ == "__main__":
    main()
