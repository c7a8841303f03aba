# The worked example of CONTRIBUTING.md, compiled as it stands there: every ```cpp block that names a
# file becomes that file, and joins the objects of the real program in an executable of its own.

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
if(NOT count EQUAL 2)
  message(FATAL_ERROR "CONTRIBUTING.md should show one kernel and one suite; found: ${example_sources}")
endif()

skidproof_program(contributing_example SOURCES ${example_sources} "${PROJECT_SOURCE_DIR}/harness/cli/main.cc"
                  DEPENDS skidproof_cli skidproof_kernels skidproof_suites)

# Holds on a conforming model; on a broken CPU it fails, and with the exit code that says so.
set(example_run "$<TARGET_FILE:contributing_example> run --machine model:sandy-bridge --filter 'PebsCopy.*'")
add_test(NAME contributing_example_holds
         COMMAND sh -c "${example_run} --out '${PROJECT_BINARY_DIR}/contributing/holds'")
add_test(NAME contributing_example_can_fail
         COMMAND sh -c "${example_run} --defect skid-none --out '${PROJECT_BINARY_DIR}/contributing/fails'; test $? -eq 1")
