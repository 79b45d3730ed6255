# Finds ROCSHMEM's headers, from which the lowering takes the library's numbers (include/Shmem/Rocshmem.h). Nothing is
# linked, and no HIP is needed. Optional: without it, the numbers of the version that Rocshmem.h names are used.
#
#   ROCSHMEM_DIR         a ROCSHMEM installation (the folder that holds include/rocshmem/), such as /opt/rocm
# gives the target ROCSHMEM::numbers
set(ROCSHMEM_DIR "" CACHE PATH "ROCSHMEM: the folder that holds include/rocshmem/; empty: none")

add_library(ROCSHMEM::numbers INTERFACE IMPORTED)
if(ROCSHMEM_DIR)
  if(NOT EXISTS ${ROCSHMEM_DIR}/include/rocshmem/rocshmem_common.hpp)
    message(FATAL_ERROR "ROCSHMEM_DIR=${ROCSHMEM_DIR} holds no include/rocshmem/rocshmem_common.hpp. Name the folder of a "
                        "ROCSHMEM installation, or leave the option out.")
  endif()
  message(STATUS "ROCSHMEM: ${ROCSHMEM_DIR}")
  target_include_directories(ROCSHMEM::numbers SYSTEM INTERFACE ${ROCSHMEM_DIR}/include)
  target_compile_definitions(ROCSHMEM::numbers INTERFACE TRITON_DIST_HAS_ROCSHMEM=1)
endif()
