# The Python that the build's own scripts run in, and that has Triton.
#   Python_EXECUTABLE  the interpreter; default: the active virtual environment's, else the first on PATH
set(Python_FIND_VIRTUALENV FIRST)
find_package(Python 3.10 QUIET COMPONENTS Interpreter)
if(NOT Python_Interpreter_FOUND)
  message(FATAL_ERROR "No Python 3.10 or newer was found. Install it (Debian/Ubuntu: apt-get install python3 python3-venv) "
                      "or name one with -DPython_EXECUTABLE=.")
endif()
