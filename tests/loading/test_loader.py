"""The plugin is there whatever is imported first, and is never shown to a Triton that it was not built for."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import triton
from python_environment import REPOSITORY, Environment, import_error, printed

BINARIES = REPOSITORY / "triton_dist" / "_C"
BUILT_FOR = triton.__version__
PLUGIN = BINARIES / f"libtriton_dist_plugin-{BUILT_FOR}.so"
INFO = PLUGIN.with_suffix(".json")

SUPPORTED = list(json.loads((REPOSITORY / "cmake" / "supported_triton.json").read_text()))

# The pass is shmem_to_llvm, and add_shmem_to_llvm from Triton 3.9 on.
HAS_PLUGIN = "import triton._C.libtriton as t; print(any('shmem_to_llvm' in name for name in dir(t.passes.plugin)))"
CHECK = "import _triton_dist_loader; _triton_dist_loader.check()"


# What a user types


@pytest.mark.parametrize(
    "program", ["import triton, triton_dist", pytest.param("import triton_dist, triton", marks=pytest.mark.slow)]
)
def test_import_order_does_not_matter(environment: Environment, program: str) -> None:
    environment.add_real_triton()
    environment.add_triton_dist()
    assert printed(environment.run(f"{program}\n{HAS_PLUGIN}")) == "True"


def test_without_the_hook_triton_dist_comes_first(environment: Environment) -> None:
    environment.add_real_triton()
    environment.add_triton_dist(hook=False)
    assert printed(environment.run(f"{CHECK}\n{HAS_PLUGIN}")) == "True"
    assert "Import triton_dist first" in import_error(environment.run(f"import triton\n{CHECK}"))


# Another Triton, no Triton, no plugin


def test_a_program_that_never_imports_us_is_unaffected_by_another_triton(environment: Environment) -> None:
    environment.add_fake_triton("3.6.0")
    environment.add_triton_dist()
    result = environment.run("import triton; print(triton.libtriton.seen)")
    assert (printed(result), result.stderr) == ("None", "")


@pytest.fixture
def only_plugin(tmp_path: Path) -> Path:
    """Binaries that hold the plugin for the installed Triton and no other."""
    folder = tmp_path / "binaries"
    folder.mkdir()
    for file in (PLUGIN, INFO):
        shutil.copy(file, folder)
    return folder


@pytest.mark.parametrize("version", ["3.6.0", "3.10.0", f"{BUILT_FOR}+git1234", f"{BUILT_FOR}0"])
@pytest.mark.parametrize("program", ["import triton_dist", "import triton, triton_dist"])
def test_another_triton_is_an_import_error(
    environment: Environment, only_plugin: Path, version: str, program: str
) -> None:
    environment.add_fake_triton(version)
    environment.add_triton_dist(binaries=only_plugin)
    message = import_error(environment.run(program))
    assert f"Triton {version} is installed" in message
    assert f"pip install triton=={BUILT_FOR}" in message


@pytest.mark.parametrize("version", SUPPORTED)
def test_a_supported_triton_without_its_plugin_says_how_to_build(
    environment: Environment, only_plugin: Path, version: str
) -> None:
    environment.add_fake_triton(version)
    environment.add_triton_dist(binaries=only_plugin)
    result = environment.run("import triton_dist")
    assert ("make plugins" in result.stderr) == (version != BUILT_FOR)


def test_of_several_plugins_triton_is_shown_its_own(environment: Environment, only_plugin: Path) -> None:
    others = {"3.10.2": True, "3.9.11": True, "3.9.12": False, "4": True}
    for version, finished in others.items():
        (only_plugin / f"libtriton_dist_plugin-{version}.so").write_text("no shared object")
        facts = {"triton": version} if finished else {}
        (only_plugin / f"libtriton_dist_plugin-{version}.json").write_text(json.dumps(facts))
    environment.add_real_triton()
    environment.add_triton_dist(binaries=only_plugin)
    printed_versions = "import _triton_dist_loader as loader; print(*loader.built_for())"
    assert printed(environment.run(printed_versions)).split() == [BUILT_FOR, "3.9.11", "3.10.2", "4"]
    assert printed(environment.run(f"{CHECK}\n{HAS_PLUGIN}")) == "True"


def test_no_triton_is_an_import_error(environment: Environment, only_plugin: Path) -> None:
    environment.add_triton_dist(binaries=only_plugin)
    message = import_error(environment.run("import triton_dist"))
    assert "no Triton is installed" in message
    assert f"pip install triton=={BUILT_FOR}" in message


def test_an_unbuilt_tree_says_how_to_build(environment: Environment, tmp_path: Path) -> None:
    environment.add_real_triton()
    environment.add_triton_dist(binaries=tmp_path)
    assert printed(environment.run(HAS_PLUGIN)) == "False"
    assert "make build" in import_error(environment.run("import triton_dist"))


@pytest.mark.parametrize("content", [pytest.param("", marks=pytest.mark.slow), "no shared object"])
def test_a_plugin_that_does_not_load_is_refused_before_triton_aborts(
    environment: Environment, tmp_path: Path, content: str
) -> None:
    (tmp_path / PLUGIN.name).write_text(content)
    shutil.copy(INFO, tmp_path)
    environment.add_real_triton()
    environment.add_triton_dist(binaries=tmp_path)
    assert printed(environment.run(HAS_PLUGIN)) == "False"
    for program in ("import triton_dist", "import triton, triton_dist"):
        assert "does not load" in import_error(environment.run(program))


@pytest.mark.parametrize(
    "content", [*(pytest.param(text, marks=pytest.mark.slow) for text in ("", "{}")), '{"triton": ']
)
def test_a_damaged_description_counts_as_unbuilt(environment: Environment, tmp_path: Path, content: str) -> None:
    shutil.copy(PLUGIN, tmp_path)
    (tmp_path / INFO.name).write_text(content)
    environment.add_real_triton()
    environment.add_triton_dist(binaries=tmp_path)
    assert printed(environment.run(HAS_PLUGIN)) == "False"
    assert "not built" in import_error(environment.run("import triton_dist"))


# Opting out


@pytest.mark.parametrize(
    ("value", "loaded"),
    [("1", False), ("0", True), *(pytest.param(*how, marks=pytest.mark.slow) for how in (("yes", False), ("", True)))],
)
def test_opting_out(environment: Environment, value: str, loaded: bool) -> None:
    environment.add_real_triton()
    environment.add_triton_dist()
    assert printed(environment.run(HAS_PLUGIN, TRITON_DIST_DISABLE_PLUGIN=value)) == str(loaded)
    if not loaded:
        message = import_error(environment.run("import triton_dist", TRITON_DIST_DISABLE_PLUGIN=value))
        assert "TRITON_DIST_DISABLE_PLUGIN" in message


# The environment variable


def test_children_see_no_trace(environment: Environment) -> None:
    environment.add_real_triton()
    environment.add_triton_dist()
    program = "import os, subprocess, triton; subprocess.run(['env']); print(os.environ.get('TRITON_PLUGIN_PATHS'))"
    output = printed(environment.run(program))
    assert "TRITON_PLUGIN_PATHS=" not in output
    assert output.endswith("None")


@pytest.fixture(scope="module")
def users_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin of somebody else's, without passes, that prints what TRITON_PLUGIN_PATHS is when Triton asks it."""
    source = tmp_path_factory.mktemp("plugin") / "users.c"
    source.write_text(f"""
        #include <stdint.h>
        #include <stdio.h>
        #include <stdlib.h>
        struct table {{ void *entries; size_t count; }};
        struct info {{
          uint32_t api;
          const char *name, *version;
          struct table passes, dialects, ops;
          const char *triton;
        }};
        struct info *tritonGetPluginInfo(void) {{
          static struct info info = {{2, "users", "1", {{0, 0}}, {{0, 0}}, {{0, 0}}, "{BUILT_FOR}"}};
          puts(getenv("TRITON_PLUGIN_PATHS")), fflush(stdout);
          return &info;
        }}
    """)
    library = source.with_suffix(".so")
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    return library


def test_the_users_own_plugins_are_kept(environment: Environment, users_plugin: Path) -> None:
    environment.add_real_triton()
    if str(users_plugin) not in printed(environment.run(HAS_PLUGIN, TRITON_PLUGIN_PATHS=str(users_plugin))):
        pytest.skip(f"Triton {BUILT_FOR} takes plugins by calls only")
    environment.add_triton_dist()
    ours = environment.site_packages / "triton_dist" / "_C" / PLUGIN.name
    program = f"import os\n{HAS_PLUGIN}\nprint(os.environ['TRITON_PLUGIN_PATHS'])"
    output = printed(environment.run(program, TRITON_PLUGIN_PATHS=str(users_plugin))).splitlines()
    assert output == [f"{ours}:{users_plugin}", "True", str(users_plugin)]


def test_a_plugin_that_the_user_lists_is_loaded_once(environment: Environment) -> None:
    environment.add_real_triton()
    environment.add_triton_dist()
    ours = environment.site_packages / "triton_dist" / "_C" / PLUGIN.name
    assert printed(environment.run(f"import triton_dist\n{HAS_PLUGIN}", TRITON_PLUGIN_PATHS=str(ours))) == "True"


# What every interpreter pays


def test_start_up_imports_nothing_else(environment: Environment) -> None:
    environment.add_triton_dist()
    modules = "import sys; print(*sorted(sys.modules))"
    with_hook = set(printed(environment.run(modules)).split())
    (environment.site_packages / "triton_dist.pth").unlink()
    without = set(printed(environment.run(modules)).split())
    assert with_hook - without == {"_triton_dist_loader"}


@pytest.mark.parametrize("loader", [None, "raise RuntimeError('broken')", "syntax error"])
def test_a_broken_installation_starts_silently(environment: Environment, loader: str | None) -> None:
    environment.add_triton_dist()
    (environment.site_packages / "_triton_dist_loader.py").unlink()
    if loader is not None:
        (environment.site_packages / "_triton_dist_loader.py").write_text(loader)
    result = environment.run("print('fine')")
    assert (printed(result), result.stderr) == ("fine", "")


def test_libtriton_keeps_its_own_loader(environment: Environment) -> None:
    environment.add_real_triton()
    environment.add_triton_dist()
    program = """if True:
        from importlib.machinery import ExtensionFileLoader
        from triton._C import libtriton
        print(type(libtriton.__loader__) is type(libtriton.__spec__.loader) is ExtensionFileLoader)"""
    assert printed(environment.run(program)) == "True"
