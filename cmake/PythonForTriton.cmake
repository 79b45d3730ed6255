# The Python that the package is built for, and pybind11 beside it.
#   Python_EXECUTABLE  the interpreter; default: the active virtual environment's, else the first on PATH
set(Python_FIND_VIRTUALENV FIRST)
find_package(Python 3.10 QUIET COMPONENTS Interpreter OPTIONAL_COMPONENTS Development.Module)
if(NOT Python_Interpreter_FOUND)
  message(FATAL_ERROR "No Python 3.10 or newer was found. Install it (Debian/Ubuntu: apt-get install python3 python3-venv) "
                      "or name one with -DPython_EXECUTABLE=.")
endif()
if(NOT Python_Development.Module_FOUND)
  message(FATAL_ERROR "The headers of ${Python_EXECUTABLE} (Python ${Python_VERSION}) were not found. "
                      "Debian/Ubuntu: apt-get install python3-dev")
endif()

# Asked anew every time: a path found inside one build environment is gone with it.
execute_process(
  COMMAND ${Python_EXECUTABLE} -m pybind11 --cmakedir
  OUTPUT_VARIABLE pybind11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${Python_EXECUTABLE} has no pybind11. Install it with: ${Python_EXECUTABLE} -m pip install pybind11")
endif()
set(pybind11_DIR ${pybind11_DIR} CACHE PATH "pybind11 of Python_EXECUTABLE" FORCE)
find_package(pybind11 REQUIRED CONFIG)
