# The build's few rules, said once: standard, warnings as errors, sanitizers, and the shape of a
# folder (a library, the tests beside its sources, its benchmarks).

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

option(SKIDPROOF_SANITIZE "Build with AddressSanitizer and UndefinedBehaviorSanitizer" OFF)
option(SKIDPROOF_SANITIZE_THREADS "Build with ThreadSanitizer" OFF)
option(SKIDPROOF_COVERAGE "Build with gcov's counters" OFF)
option(SKIDPROOF_INSTALLED "For packages: the program looks for its files only where it is installed, and warnings are no errors" OFF)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${PROJECT_SOURCE_DIR}/cmake/compile")
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# GCC looks for garbage again and again, for a sixth of its time; where there is room for two gigabytes a job, of which Ninja
# begins three for two cores, it need not.
cmake_host_system_information(RESULT skidproof_cores QUERY NUMBER_OF_LOGICAL_CORES)
cmake_host_system_information(RESULT skidproof_megabytes QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR skidproof_megabytes_each "${skidproof_megabytes} / ${skidproof_cores}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND skidproof_megabytes_each GREATER 5000)
  add_compile_options("SHELL:--param ggc-min-expand=1000" "SHELL:--param ggc-min-heapsize=2000000")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Newer ones complain of what GCC 12's std::stable_sort itself calls.
  add_compile_options(-fcolor-diagnostics -Wno-deprecated-declarations)
else()
  add_compile_options(-fdiagnostics-color=auto)
endif()
if(SKIDPROOF_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Generated code has no type in front of it, and it may be that nothing at all is mapped there.
    add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize=function
                        "-fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/sanitize_ignore.txt")
    # Where it is there it links the large programs of this build in a fraction of the time.
    include(CheckLinkerFlag)
    check_linker_flag(CXX -fuse-ld=lld SKIDPROOF_HAS_LLD)
    if(SKIDPROOF_HAS_LLD)
      add_link_options(-fuse-ld=lld)
    endif()
  endif()
endif()

if(SKIDPROOF_SANITIZE_THREADS)
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
endif()
if(SKIDPROOF_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()

# What executes no programs for long is compiled in half the time with less optimization, and under the sanitizers with
# none, as all is there but what executes programs; what is not fuzzed goes without coverage as well.
set(skidproof_light)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Of what it inlines at -O1, GCC 12 takes objects on the stack for ones that are deleted, and matchers without
  # a member for ones that nobody set.
  set(skidproof_light "$<$<CONFIG:Release>:-O1;-Wno-free-nonheap-object;-Wno-maybe-uninitialized>")
endif()
if(SKIDPROOF_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(skidproof_light -fno-sanitize=fuzzer-no-link)
endif()

# What executes a program instruction by instruction clears and copies a few hundred bytes for each: inline, GCC 12
# would take REP STOS and REP MOVS, which cost more to begin than that.
set(skidproof_stepping)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(strategy unrolled_loop:512:noalign,libcall:-1:noalign)
  set(skidproof_stepping "$<$<CONFIG:Release>:-mmemset-strategy=${strategy};-mmemcpy-strategy=${strategy}>")
elseif(SKIDPROOF_SANITIZE)
  set(skidproof_stepping -O1)
endif()

add_library(skidproof_options INTERFACE)
target_include_directories(skidproof_options INTERFACE "${PROJECT_SOURCE_DIR}")
target_compile_options(skidproof_options INTERFACE -Wall -Wextra $<$<NOT:$<BOOL:${SKIDPROOF_INSTALLED}>>:-Werror> -Wshadow
                                                   -Wnon-virtual-dtor -Wno-missing-field-initializers)
# All code is for executables but where a target says that it is position-independent, for a module of Python's: one
# precompiled header serves libraries and programs, and calls between sources are direct.
target_compile_options(skidproof_options INTERFACE $<$<NOT:$<BOOL:$<TARGET_PROPERTY:POSITION_INDEPENDENT_CODE>>>:-fPIE>)
target_link_options(skidproof_options INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>)

# Most of the time goes into libraries' headers, so they are compiled once for all targets that are compiled alike:
# skidproof_headers(NAME [LIGHT | STEPPING] HEADERS ... DEPENDS ...). Sources still include what they use; clang-tidy
# compiles each without this. Of the project's own headers only those belong here that hardly change, and none that
# ci/mutate asks the build about: which sources saw it.
function(skidproof_headers name)
  cmake_parse_arguments(ARG "LIGHT;STEPPING" "" "HEADERS;DEPENDS" ${ARGN})
  set(empty "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  file(CONFIGURE OUTPUT "${empty}" CONTENT "// Compiled for the headers before it.\n")
  add_library(${name} OBJECT "${empty}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${name} PRIVATE skidproof_options ${ARG_DEPENDS})
  if(ARG_LIGHT)
    target_compile_options(${name} PRIVATE ${skidproof_light})
  elseif(ARG_STEPPING)
    target_compile_options(${name} PRIVATE ${skidproof_stepping})
  endif()
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  skidproof_pch_options(${name})
endfunction()
function(skidproof_use_headers name headers)
  target_precompile_headers(${name} REUSE_FROM ${headers})
  skidproof_pch_options(${name})
endfunction()
function(skidproof_pch_options name)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(${name} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")  # for ccache
  endif()
endfunction()

# Where CMAKE_UNITY_BUILD is on, many sources of a target are compiled as one, in a fraction of the time: names at
# namespace level, in unnamed namespaces too, are unique in a folder. Kernels and suites have a namespace each. Not so
# data of microarchs, whose files repeat one another's names. Where there are few cores to compile on at once, more sources
# make one, so that what they share is instantiated fewer times.
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  if(skidproof_cores LESS_EQUAL 2)
    set(CMAKE_UNITY_BUILD_BATCH_SIZE 32)
  elseif(skidproof_cores LESS_EQUAL 4)
    set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
  endif()
endif()

# skidproof_library(NAME [OBJECT] [LIGHT | STEPPING] SOURCES ... DEPENDS ... [HEADERS name]): a folder's
# library, with the precompiled headers of that name. OBJECT keeps every object file in the executables that link it, for code that registers itself before main.
# LIGHT, STEPPING: see above.
function(skidproof_library name)
  cmake_parse_arguments(ARG "OBJECT;LIGHT;STEPPING" "HEADERS" "SOURCES;DEPENDS" ${ARGN})
  if(ARG_OBJECT)
    add_library(${name} OBJECT ${ARG_SOURCES})
  else()
    add_library(${name} STATIC ${ARG_SOURCES})
  endif()
  target_link_libraries(${name} PUBLIC skidproof_options ${ARG_DEPENDS})
  if(ARG_LIGHT)
    target_compile_options(${name} PRIVATE ${skidproof_light})
  elseif(ARG_STEPPING)
    target_compile_options(${name} PRIVATE ${skidproof_stepping})
  endif()
  if(ARG_HEADERS)
    skidproof_use_headers(${name} ${ARG_HEADERS})
  elseif(ARG_STEPPING)
    skidproof_use_headers(${name} skidproof_stepping_headers)
  elseif(NOT ARG_LIGHT)
    skidproof_use_headers(${name} skidproof_common_headers)
  endif()
endfunction()

# Every program that is no test: `cmake --build --preset release --target programs` leaves the tests out.
add_custom_target(programs)

# skidproof_program(NAME [MEASURED | OF_A_TEST] SOURCES ... DEPENDS ...): an executable that is no test. MEASURED: its own
# time is, so that a build with sanitizers has no use for it. OF_A_TEST: what one runs, which depends on it.
function(skidproof_program name)
  cmake_parse_arguments(ARG "MEASURED;OF_A_TEST" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${name} PRIVATE skidproof_options ${ARG_DEPENDS})
  if(ARG_MEASURED)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ${SKIDPROOF_SANITIZE})
  else()
    target_compile_options(${name} PRIVATE ${skidproof_light})
  endif()
  if(NOT ARG_OF_A_TEST)
    add_dependencies(programs ${name})
  endif()
endfunction()

# skidproof_test(NAME SOURCES ... DEPENDS ...): one GoogleTest program made of x_test.cc files; ctest's label of it is "program".
function(skidproof_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;ARGS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE skidproof_options ${ARG_DEPENDS} GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${skidproof_light})
  skidproof_use_headers(${name} skidproof_test_headers)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS program)
endfunction()

# skidproof_benchmark(NAME SOURCES ... DEPENDS ...): a Google Benchmark program; CI builds it and
# runs it once, briefly, so that it cannot rot.
function(skidproof_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  skidproof_program(${name} MEASURED SOURCES ${ARG_SOURCES} DEPENDS ${ARG_DEPENDS} benchmark::benchmark)
endfunction()

# skidproof_fuzzer(NAME SOURCES ... DEPENDS ...): a libFuzzer program; built with the sanitizers only.
function(skidproof_fuzzer name)
  if(NOT SKIDPROOF_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz" UNITY_BUILD OFF)
  target_link_libraries(${name} PRIVATE skidproof_options ${ARG_DEPENDS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endfunction()

# skidproof_glob(PREFIX FOLDER): PREFIX_sources, PREFIX_tests (x_test.cc) and PREFIX_fuzzers (x_fuzz.cc)
# of a folder, so that a new file needs no edit here or there.
macro(skidproof_glob prefix folder)
  file(GLOB ${prefix}_sources CONFIGURE_DEPENDS ${folder}/*.cc)
  file(GLOB ${prefix}_tests CONFIGURE_DEPENDS ${folder}/*_test.cc)
  file(GLOB ${prefix}_fuzzers CONFIGURE_DEPENDS ${folder}/*_fuzz.cc)
  list(REMOVE_ITEM ${prefix}_sources ${${prefix}_tests} ${${prefix}_fuzzers})
endmacro()
