# SPDX-License-Identifier: Apache-2.0
# What find_package(potl) finds in an installed tree.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(POTL_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/potl)
install(TARGETS potl EXPORT potl-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/potl DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(EXPORT potl-targets NAMESPACE potl:: DESTINATION ${POTL_CONFIG_DIR})
if(POTL_INSTALL_TORCH)
  install(TARGETS potl_libtorch_arithmetic EXPORT potl-torch-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT potl-torch-targets NAMESPACE potl:: DESTINATION ${POTL_CONFIG_DIR})
endif()
if(POTL_WITH_CUDA)
  install(TARGETS potl_cuda EXPORT potl-cuda-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT potl-cuda-targets NAMESPACE potl:: DESTINATION ${POTL_CONFIG_DIR})
endif()
configure_package_config_file(cmake/potl-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/potl-config.cmake
                              INSTALL_DESTINATION ${POTL_CONFIG_DIR})
# Before 1.0 a minor version may change what is included here.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/potl-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/potl-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/potl-config-version.cmake
        DESTINATION ${POTL_CONFIG_DIR})
