# The worked examples of CONTRIBUTING.md, compiled as they stand there: every ```cpp block that names a
# file becomes that file, and joins the objects of the real program in an executable of its own; a microarch also the
# library of microarchs, in one that knows nothing else and is there in seconds.

set(page "${PROJECT_SOURCE_DIR}/CONTRIBUTING.md")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${page}")
file(READ "${page}" text)
# CMake lists split at semicolons and brackets; hide them while the page is cut up.
string(REPLACE ";" "<semicolon>" text "${text}")
string(REPLACE "[" "<open>" text "${text}")
string(REPLACE "]" "<close>" text "${text}")
string(REGEX MATCHALL "```cpp [^\n]+\n[^`]+```" blocks "${text}")

set(example_sources)
foreach(block IN LISTS blocks)
  string(REGEX REPLACE "```cpp ([^\n]+)\n.*" "\\1" name "${block}")
  string(REGEX REPLACE "```cpp [^\n]+\n(.*)```" "\\1" code "${block}")
  string(REPLACE "<semicolon>" ";" code "${code}")
  string(REPLACE "<open>" "[" code "${code}")
  string(REPLACE "<close>" "]" code "${code}")
  set(file "${PROJECT_BINARY_DIR}/contributing/${name}")
  file(CONFIGURE OUTPUT "${file}" CONTENT "${code}" @ONLY)
  list(APPEND example_sources "${file}")
endforeach()
list(LENGTH example_sources count)
if(NOT count EQUAL 3)
  message(FATAL_ERROR "CONTRIBUTING.md should show one kernel, one suite and one microarch; found: ${example_sources}")
endif()

# The table with the example's row stands before the library's own, which is then not taken out of it.
set(example_folder "${PROJECT_BINARY_DIR}/contributing/microarchs")
set(example_microarch ${example_sources})
list(FILTER example_microarch INCLUDE REGEX "/pebs/arch/")
file(GLOB rows CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/pebs/arch/*.cc")
list(FILTER rows EXCLUDE REGEX "_(test|fuzz)\\.cc$")
skidproof_microarchs("${example_folder}" SOURCES ${rows} ${example_microarch})
skidproof_program(contributing_microarch SOURCES ${example_microarch} "${example_folder}/microarchs.cc"
                  "${PROJECT_SOURCE_DIR}/pebs/arch/testing/list_microarchs.cc" DEPENDS skidproof_arch)
add_test(NAME contributing_microarch_is_listed COMMAND contributing_microarch)
set_tests_properties(contributing_microarch_is_listed PROPERTIES PASS_REGULAR_EXPRESSION " example-lake\n.* granite-rapids\n")
add_test(NAME contributing_microarch_is_in_order
         COMMAND sh -c "$<TARGET_FILE:contributing_microarch> | LC_ALL=C sort --check --stable --key=1,1")

skidproof_program(contributing_example SOURCES ${example_sources} "${example_folder}/microarchs.cc"
                  "${PROJECT_SOURCE_DIR}/harness/cli/main.cc" DEPENDS skidproof_cli skidproof_kernels skidproof_suites)

# Holds on a conforming model; on a broken CPU it fails, and with the exit code that says so.
set(example_run "$<TARGET_FILE:contributing_example> run --machine model:example-lake --filter 'PebsCopy.*'")
add_test(NAME contributing_example_holds
         COMMAND sh -c "${example_run} --out '${PROJECT_BINARY_DIR}/contributing/holds'")
add_test(NAME contributing_example_can_fail
         COMMAND sh -c "${example_run} --defect skid-none --out '${PROJECT_BINARY_DIR}/contributing/fails'; test $? -eq 1")
