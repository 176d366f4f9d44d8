"""Print the lowest versions that pyproject.toml allows, as constraints for pip, which has no option for them."""

import re
import tomllib
from pathlib import Path

# Of packages that others need: matplotlib 3.8 calls what pyparsing 3.3 warns of.
FURTHER = ["pyparsing<3.3"]


def lowest(project):
    """A constraint ``name==version`` for every requirement with a lower bound."""
    listed = [
        *project["dependencies"],
        *(item for extra in project["optional-dependencies"].values() for item in extra),
    ]
    bounds = [re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", requirement) for requirement in listed]
    return sorted({f"{bound[1]}=={bound[2]}" for bound in bounds if bound})


if __name__ == "__main__":
    pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    print("\n".join([*lowest(pyproject["project"]), *FURTHER]))
