# voxgrad_options(target): the flags of the library, its tests, examples and benchmarks. All of them are
# PRIVATE: a program that links voxgrad gets C++20 and an include folder, and no flag.

include(CheckCXXCompilerFlag)
if(VOXGRAD_NATIVE)
  check_cxx_compiler_flag(-march=native VOXGRAD_HAVE_MARCH_NATIVE)
endif()

function(voxgrad_options target)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON
    COMPILE_WARNING_AS_ERROR ${VOXGRAD_WERROR})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic>
    # One rounding per operation as written: if a compiler fused a*b+c in the body of a loop but not in its tail, a
    # result would depend on its position. Kernels that want an fma call it (Eigen's packets do).
    $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
    # CMake 3.25 has no CUDA20 dialect, so the standard is given by hand.
    $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--extended-lambda;--expt-relaxed-constexpr;-lineinfo;-Xcompiler=-Wall>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # "text" + std::string looks to GCC 12 like an overlapping copy (GCC bug 105651).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Clang does not know `GCC ivdep`, and it asks for && where a kernel writes & to keep a loop without branches.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-pragmas;-Wno-bitwise-instead-of-logical>)
  endif()
  if(VOXGRAD_HAVE_MARCH_NATIVE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
  endif()
  # A user's program may bring its own Eigen, compiled with other flags. If both had one name, the linker would merge
  # them. So ours is called voxgrad_eigen (the macro renames the namespace, not the #include).
  target_compile_definitions(${target} PRIVATE Eigen=voxgrad_eigen)
endfunction()
