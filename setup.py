"""Puts models/ and recipes/starter/ into the package: all else is said in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithModels(build_py):
    """A wheel holds every model that has weights; a checkout is read where it lies."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for weights in Path("models").glob("*/weights.safetensors"):
            place = Path(self.build_lib, "simultan", "models", weights.parent.name)
            shutil.copytree(weights.parent, place, dirs_exist_ok=True)
        recipes = Path(self.build_lib, "simultan", "recipes", "starter")
        shutil.copytree(Path("recipes", "starter"), recipes, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithModels})
