"""`python setup.py bdist_wheel`, for tools that call it: the wheel that `pip wheel .` makes by pyproject.toml.

Both run the same CMake build through scikit-build-core, here its plugin for setuptools. What a package is called, needs
and installs stands in pyproject.toml alone; this file only says to setuptools which files that are.
"""

import os
import shutil
from pathlib import Path

os.environ["TRITON_DIST_SETUP_PY"] = "1"  # pyproject.toml has options that the plugin for setuptools does not take

from setuptools import find_namespace_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

MORE = {"triton_dist.pth": "triton_dist.pth"} | {
    str(example): f"triton_dist/{example.as_posix()}" for example in Path("examples").glob("*.py")
}


class BuildWithHook(build_py):
    """Puts the start-up hook beside the modules, and the examples into the package."""

    def run(self):
        super().run()
        if not self.editable_mode:
            for source, place in MORE.items():
                Path(self.build_lib, place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, Path(self.build_lib, place))

    def get_outputs(self, *arguments, **keywords):
        return [*super().get_outputs(*arguments, **keywords), *(str(Path(self.build_lib, p)) for p in MORE.values())]


class WheelForEveryPython(bdist_wheel):
    """The binaries are for a platform, and for no version of Python."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


distribution = setup(
    cmake_source_dir=".",
    # scikit-build-core tells CMake so when pip asks it, and not when setuptools does.
    cmake_args=["-DSKBUILD_STATE=wheel"],
    packages=find_namespace_packages(include=["triton_dist", "triton_dist.*"], exclude=["triton_dist._C*"]),
    package_data={
        "triton_dist": ["py.typed"],
        "triton_dist.ahead_of_time": ["*.h"],
        "triton_dist.kernels.choice": ["tables/*.json"],
        "triton_dist.model": ["machines/*.toml"],
    },
    py_modules=["_triton_dist_compile", "_triton_dist_info", "_triton_dist_loader", "_triton_dist_support"],
    cmdclass={"build_py": BuildWithHook, "bdist_wheel": WheelForEveryPython},
)
