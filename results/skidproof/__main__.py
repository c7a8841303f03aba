"""The verbs that read results: `python3 results/skidproof VERB …`, which `skidproof VERB …` calls."""

import pathlib
import sys

sys.dont_write_bytecode = True  # reading results leaves nothing beside the program
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from skidproof import cli  # noqa: E402

if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
