# The C interface (capi/). ops.cpp, voxgrad's ops by name, serves tests too.
set(capi ${PROJECT_SOURCE_DIR}/capi)

add_library(voxgrad_ops_by_name STATIC ${capi}/ops.cpp)
voxgrad_options(voxgrad_ops_by_name)
target_include_directories(voxgrad_ops_by_name PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(voxgrad_ops_by_name PUBLIC voxgrad::voxgrad)

add_library(voxgrad_capi OBJECT ${capi}/errors.cpp ${capi}/tensors.cpp)
voxgrad_options(voxgrad_capi)
target_link_libraries(voxgrad_capi PRIVATE voxgrad_ops_by_name)

# A library `name` that Python loads: the C interface to tensors and ops, and further sources. It exports functions of
# its own sources alone, because PyTorch may bring a CUDA runtime of its own.
function(voxgrad_capi_library name)
  add_library(${name} MODULE $<TARGET_OBJECTS:voxgrad_capi> ${ARGN})
  voxgrad_options(${name})
  target_link_libraries(${name} PRIVATE voxgrad_ops_by_name)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
endfunction()
