# The kernels of ops/cpu/simd, once per instruction set (Note [Instruction sets] in ops/cpu/isa.h):
# object libraries voxgrad_simd_<isa> for each of VOXGRAD_ISAS.

include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)
set(VOXGRAD_ISAS baseline)
set(VOXGRAD_X86_ISAS 0)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  check_cxx_compiler_flag(-march=x86-64-v4 VOXGRAD_HAVE_MARCH_V4)
  # ops/cpu/isa.cpp uses this call: older Clang knows the compile flag, but not this argument.
  check_cxx_source_compiles("int main() { return __builtin_cpu_supports(\"x86-64-v4\"); }" VOXGRAD_HAVE_CPU_SUPPORTS_V4)
  if(VOXGRAD_HAVE_MARCH_V4 AND VOXGRAD_HAVE_CPU_SUPPORTS_V4)
    list(APPEND VOXGRAD_ISAS v3 v4)
    set(VOXGRAD_X86_ISAS 1)
  endif()
endif()

file(GLOB simd_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ops/cpu/simd/*.cpp)
# The files in which the compiler may fuse a * b + c into one rounding, because they have their own order of summation
# anyway. All other files obey Note [Same bits everywhere] in ops/cpu/simd/elementwise.cpp: fma only where it is
# written, in the vector part of a loop and in its tail alike. They also do without floating-point traps, so that the
# compiler can compute both values of a choice.
foreach(name IN ITEMS conv3d)
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/ops/cpu/simd/${name}.cpp APPEND PROPERTY
    COMPILE_OPTIONS -ffp-contract=fast -ftrapping-math)
endforeach()
foreach(isa IN LISTS VOXGRAD_ISAS)
  set(target voxgrad_simd_${isa})
  add_library(${target} OBJECT ${simd_sources})
  voxgrad_options(${target})  # among them -ffp-contract=off
  target_compile_definitions(${target} PRIVATE VOXGRAD_ISA=${isa})
  # Optimised in every build type: a function that is not inlined becomes a symbol outside the namespace, and tests of
  # unoptimised vector code take very long. No exceptions: kernels throw nothing.
  target_compile_options(${target} PRIVATE -O3 -fno-exceptions -fno-math-errno -fno-trapping-math -Wno-psabi)
  if(NOT isa STREQUAL "baseline")
    target_compile_options(${target} PRIVATE -march=x86-64-${isa})
  endif()
  target_include_directories(${target} PRIVATE ${VOXGRAD_INCLUDE_DIR})
endforeach()
