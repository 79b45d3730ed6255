# The MLIR and LLVM whose headers the plugin is compiled with. Their libraries are never linked: at run time the only MLIR
# in the process is the one inside libtriton.so, and check_abi.py proves after every link that the two fit.
#
#   MLIR_DIR, LLVM_DIR   the folders of MLIRConfig.cmake and LLVMConfig.cmake; default: Debian's LLVM of the version that
#                        supported_triton.json names for this Triton, as installed, else unpacked into DOWNLOADS
#   DOWNLOADS            where the parts of other LLVMs and Tritons are put that a build needs
# gives the usual variables of MLIR and LLVM, their CMake functions, and the target mlir-headers-for-triton
set(DOWNLOADS ${PROJECT_BINARY_DIR}/downloads CACHE PATH "Where the parts of other LLVMs and Tritons are put")
set(apt_packages "libmlir-${Triton_LLVM}-dev mlir-${Triton_LLVM}-tools llvm-${Triton_LLVM}-dev")

# Where Debian's LLVM of a version is, unpacked if it is not installed.
function(find_debians_llvm version prefix)
  set(found /usr/lib/llvm-${version})
  if(NOT EXISTS ${found}/lib/cmake/mlir/MLIRConfig.cmake)
    set(unpacked ${DOWNLOADS}/llvm-${version})
    if(NOT EXISTS ${unpacked})
      message(STATUS "LLVM ${version} is not installed: unpacking it into ${unpacked}")
      execute_process(COMMAND bash ${PROJECT_SOURCE_DIR}/cmake/fetch_llvm.sh ${version} ${unpacked}
                      ERROR_VARIABLE why_not_fetched)
      set(why_not_fetched ${why_not_fetched} PARENT_SCOPE)
    endif()
    if(EXISTS ${unpacked})
      string(PREPEND found ${unpacked})
    endif()
  endif()
  set(${prefix} ${found} PARENT_SCOPE)
endfunction()

if(NOT (MLIR_DIR AND LLVM_DIR))
  find_debians_llvm(${Triton_LLVM} llvm_prefix)
endif()
set(defaults "")
foreach(name MLIR LLVM)
  string(TOLOWER ${name} folder)
  if(NOT ${name}_DIR)
    set(${name}_DIR ${llvm_prefix}/lib/cmake/${folder})
    list(APPEND defaults ${name}_DIR)
  endif()
  # find_package would quietly take another one that it finds elsewhere.
  if(NOT EXISTS ${${name}_DIR}/${name}Config.cmake)
    message(FATAL_ERROR "No ${name}Config.cmake in ${${name}_DIR}. Debian/Ubuntu: apt-get install ${apt_packages}\n"
                        "(a distribution without them: see apt.llvm.org), or name an LLVM with -DMLIR_DIR= and -DLLVM_DIR=.\n"
                        "${why_not_fetched}To build for one Triton alone: -DALSO_FOR_TRITON=none (pip install . -C cmake.define.ALSO_FOR_TRITON=none)")
  endif()
endforeach()

# MLIR's and LLVM's own configuration fail on these, in words that name no package.
get_filename_component(mlir_tblgen ${MLIR_DIR}/../../../bin/mlir-tblgen ABSOLUTE)
if(NOT EXISTS ${mlir_tblgen})
  message(FATAL_ERROR "There is no ${mlir_tblgen}. Debian/Ubuntu: apt-get install mlir-${Triton_LLVM}-tools")
endif()
get_filename_component(llvm_tblgen ${LLVM_DIR}/../../../bin/llvm-tblgen ABSOLUTE)
if(NOT EXISTS ${llvm_tblgen})
  message(FATAL_ERROR "There is no ${llvm_tblgen}. Debian/Ubuntu: apt-get install llvm-${Triton_LLVM}-dev")
endif()
file(STRINGS ${LLVM_DIR}/LLVMConfig.cmake needed REGEX "^set\\(LLVM_ENABLE_(ZLIB|ZSTD) +(1|ON|TRUE|FORCE_ON)\\)")
foreach(pair ZLIB:zlib1g-dev zstd:libzstd-dev)
  string(REGEX REPLACE ":.*" "" library ${pair})
  string(REGEX REPLACE ".*:" "" apt_package ${pair})
  string(TOUPPER ${library} upper)
  if(needed MATCHES "LLVM_ENABLE_${upper} ")
    list(PREPEND CMAKE_MODULE_PATH ${LLVM_DIR}) # Findzstd.cmake
    find_package(${library} QUIET)
    list(POP_FRONT CMAKE_MODULE_PATH)
    if(NOT ${library}_FOUND)
      message(FATAL_ERROR "The LLVM in ${LLVM_DIR} needs ${library}, whose headers were not found. "
                          "Debian/Ubuntu: apt-get install ${apt_package}")
    endif()
  endif()
endforeach()

find_package(MLIR REQUIRED CONFIG PATHS ${MLIR_DIR} NO_DEFAULT_PATH)
message(STATUS "MLIR ${LLVM_PACKAGE_VERSION}: ${MLIR_DIR}")
foreach(variable ${defaults})
  unset(${variable} CACHE) # chosen anew for another Triton
endforeach()

list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
set(MLIR_TABLEGEN_EXE ${mlir_tblgen})
set(LLVM_TABLEGEN_EXE ${llvm_tblgen})
include(TableGen)
include(AddLLVM)
include(AddMLIR)

include(EarlierLayouts)

# Triton's LLVM is built with assertions, a distribution's is not, and the layout of many classes follows this macro. (When
# a libtriton is built without, the symbol llvm::EnableABIBreakingChecks is missing in it and check_abi.py says so.)
foreach(dir ${LLVM_INCLUDE_DIRS})
  if(EXISTS ${dir}/llvm/Config/abi-breaking.h)
    file(READ ${dir}/llvm/Config/abi-breaking.h header)
  endif()
endforeach()
string(REGEX REPLACE "(define LLVM_ENABLE_ABI_BREAKING_CHECKS) [01]" "\\1 1" header "${header}")
if(NOT header MATCHES "define LLVM_ENABLE_ABI_BREAKING_CHECKS 1")
  message(FATAL_ERROR "llvm/Config/abi-breaking.h in ${LLVM_INCLUDE_DIRS} does not define LLVM_ENABLE_ABI_BREAKING_CHECKS")
endif()
file(CONFIGURE OUTPUT ${shadow}/llvm/Config/abi-breaking.h CONTENT "${header}" @ONLY)

add_library(mlir-headers-for-triton INTERFACE)
target_include_directories(mlir-headers-for-triton BEFORE INTERFACE ${shadow})
target_include_directories(mlir-headers-for-triton SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
target_compile_definitions(mlir-headers-for-triton INTERFACE _GNU_SOURCE __STDC_CONSTANT_MACROS __STDC_FORMAT_MACROS
                                                             __STDC_LIMIT_MACROS)
target_compile_options(mlir-headers-for-triton INTERFACE -fno-rtti -fno-exceptions)
