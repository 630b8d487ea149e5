# Stand-ins for what a machine without a GPU lacks: a driver library and a CUDA toolkit, both steered by the tests; and cuda_abi, which holds
# our declarations of the driver against NVIDIA's header where there is one, cuda_smoke, which runs kernels/probe.cu on a true GPU, cuda_one,
# which runs kernels/one.cu there, cuda_choose, which runs kernels/choose.cu, cuda_nccl, which tries this
# machine's NCCL, and cuda_paths, which plans models on GPUs that are not there.
find_path(CUDA_H_DIR cuda.h PATHS $ENV{CUDA_PATH}/include $ENV{CUDA_HOME}/include /usr/local/cuda/include NO_CMAKE_FIND_ROOT_PATH
  DOC "folder of NVIDIA's cuda.h, for a test only")
mark_as_advanced(CUDA_H_DIR)
list(APPEND TEST_PROGRAMS "cuda_abi=tests/cuda/abi_ours.c tests/cuda/abi_nvidia.c" "cuda_smoke=tests/cuda/smoke.c" "cuda_one=tests/cuda/one.c"
  "cuda_choose=tests/cuda/choose.c" "cuda_nccl=tests/cuda/nccl/one_rank.c" "cuda_paths=tests/cuda/paths.c")
if(CUDA_H_DIR)
  set_source_files_properties(tests/cuda/abi_nvidia.c PROPERTIES COMPILE_OPTIONS "-isystem;${CUDA_H_DIR};-DHAVE_CUDA_H")
endif()

function(mlxcel_fake_driver target folder)
  set(names libcuda .so.1)
  if(WIN32)
    set(names nvcuda .dll)
  endif()
  list(GET names 0 name)
  list(GET names 1 suffix)
  add_library(${target} MODULE tests/cuda/fake_libcuda.c)
  target_link_libraries(${target} PRIVATE mlxcel_flags)
  target_compile_definitions(${target} PRIVATE ${ARGN})
  set_target_properties(${target} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder}
    OUTPUT_NAME ${name} SUFFIX ${suffix})
  add_dependencies(unit_tests ${target})
endfunction()
mlxcel_fake_driver(fake_cuda fake-driver)
mlxcel_fake_driver(fake_cuda_broken fake-driver-broken FAKE_LACKS)

# NCCL for ranks that are threads: as it should be, without a function that is needed, and without those that may be missing.
function(mlxcel_fake_nccl target folder)
  add_library(${target} MODULE tests/cuda/nccl/fake_nccl.c)
  target_link_libraries(${target} PRIVATE mlxcel_flags)
  target_compile_definitions(${target} PRIVATE ${ARGN})
  set_target_properties(${target} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${folder} OUTPUT_NAME libnccl SUFFIX .so.2)
  add_dependencies(unit_tests ${target})
endfunction()
mlxcel_fake_nccl(fake_nccl fake-nccl)
mlxcel_fake_nccl(fake_nccl_broken fake-nccl-broken FAKE_LACKS)
mlxcel_fake_nccl(fake_nccl_older fake-nccl-older FAKE_OLDER)

# Two toolkits side by side, in folders with blanks and letters beyond ASCII. The fake nvcc reads its version from the folder's name.
add_executable(fake_nvcc tests/cuda/fake_nvcc.c tests/test_paths.c)
target_link_libraries(fake_nvcc PRIVATE mlxcel_core)
foreach(folder "fake toolkit ü 13.0" "fake toolkit ü 12.4")
  add_custom_command(TARGET fake_nvcc POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/${folder}/bin
    COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:fake_nvcc> ${CMAKE_BINARY_DIR}/${folder}/bin/nvcc${CMAKE_EXECUTABLE_SUFFIX}
    COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_FILE:fake_nvcc> ${CMAKE_BINARY_DIR}/${folder}/bin/cl${CMAKE_EXECUTABLE_SUFFIX} VERBATIM)
endforeach()
# The older one does not know that cl.exe.
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/fake toolkit ü 12.4/include/crt/host_config.h" CONTENT "#if _MSC_VER < 1910 || _MSC_VER >= 1940\n")
add_dependencies(unit_tests fake_nvcc kernelc)
