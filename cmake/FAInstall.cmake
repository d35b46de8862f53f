# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What `cmake --install` puts into a prefix beside the targets themselves, which
# say so where they are made: headers, CMake package, pkg-config files, licences,
# examples. docs/c-api.md is what a user reads. The Python package is a component
# of its own (`--component python`) and no part of the whole.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/fa)
set(_made ${PROJECT_BINARY_DIR}/cmake/fa)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/fa-c
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/licenses
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/runtime/examples/
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/runtime)

if(FA_LIBRARY)
  # A library that was made elsewhere; the package file describes it.
  install(PROGRAMS $<TARGET_FILE:fa> RENAME libfa.so
    DESTINATION ${CMAKE_INSTALL_LIBDIR})
else()
  # For passes and tools out of this tree: the compiler's own headers and
  # archives.
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/fa
    ${PROJECT_BINARY_DIR}/include/fa
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h" PATTERN "*.td" PATTERN "*.inc"
    PATTERN "CMakeFiles" EXCLUDE)
  install(EXPORT fa-compiler-targets NAMESPACE fa:: DESTINATION ${_package})
endif()
install(EXPORT fa-targets NAMESPACE fa:: DESTINATION ${_package})

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/fa-config.cmake.in ${_made}/fa-config.cmake
  INSTALL_DESTINATION ${_package} PATH_VARS CMAKE_INSTALL_LIBDIR
  CMAKE_INSTALL_INCLUDEDIR)
# Before 1.0 a minor version may change what is installed.
write_basic_package_version_file(${_made}/fa-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${_made}/fa-config.cmake ${_made}/fa-config-version.cmake
  DESTINATION ${_package})

# Relative to the file, so that the prefix may move.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(FA_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH _up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" _up "${_up}")
  set(FA_PC_PREFIX "\${pcfiledir}/${_up}")
endif()
foreach(_name fa fa-runtime)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${_name}.pc.in
    ${_made}/${_name}.pc @ONLY)
  install(FILES ${_made}/${_name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
