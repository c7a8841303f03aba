# The table of microarchs: whatever row a source defines, nobody writes it down a second time.
#
# skidproof_microarchs(FOLDER SOURCES ...): of the lines that begin with SKIDPROOF_MICROARCH(row) it writes into FOLDER
#   microarchs.cc                  the table, skidproof::arch::defined_microarchs(), to be compiled
#   pebs/arch/generations.h        the rows by name, to be included where FOLDER is searched
# When one of the sources changes the build is configured again; what comes out the same is not written again.
function(skidproof_microarchs folder)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${ARG_SOURCES}")
  set(rows "")
  foreach(source IN LISTS ARG_SOURCES)
    file(STRINGS "${source}" lines REGEX "SKIDPROOF_MICROARCH *\\(")
    if(lines)  # such files repeat one another's names
      set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    foreach(line IN LISTS lines)
      if(NOT line MATCHES "^SKIDPROOF_MICROARCH\\((k[A-Z][A-Za-z0-9]*)\\) =")
        message(FATAL_ERROR "${source}: a row is defined by a line that begins with SKIDPROOF_MICROARCH(kName) =, not by: ${line}")
      endif()
      if(CMAKE_MATCH_1 IN_LIST rows)
        message(FATAL_ERROR "${source}: there is a row ${CMAKE_MATCH_1} already: give this one another name")
      endif()
      list(APPEND rows "${CMAKE_MATCH_1}")
    endforeach()
  endforeach()
  if(rows STREQUAL "")
    message(FATAL_ERROR "no source of pebs/arch defines a microarch")
  endif()
  list(SORT rows)
  set(declarations "")
  set(addresses "")
  foreach(row IN LISTS rows)
    string(APPEND declarations "extern const Microarch ${row};\n")
    string(APPEND addresses "    &${row},\n")
  endforeach()
  file(CONFIGURE OUTPUT "${folder}/pebs/arch/generations.h" @ONLY CONTENT
"// Written by the build: the microarch rows by name.
#ifndef SKIDPROOF_PEBS_ARCH_GENERATIONS_H_
#define SKIDPROOF_PEBS_ARCH_GENERATIONS_H_

#include \"pebs/arch/microarch.h\"

namespace skidproof::arch {

@declarations@
}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_GENERATIONS_H_
")
  # By itself, so that where a program has a table of its own the library's is not taken out of it.
  set_source_files_properties("${folder}/microarchs.cc" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  file(CONFIGURE OUTPUT "${folder}/microarchs.cc" @ONLY CONTENT
"// Written by the build: the rows that SKIDPROOF_MICROARCH defines.
#include \"pebs/arch/microarch.h\"

namespace skidproof::arch {

@declarations@
namespace {

constexpr const Microarch* kDefined[] = {
@addresses@};

}  // namespace

std::span<const Microarch* const> defined_microarchs() { return kDefined; }

}  // namespace skidproof::arch
")
endfunction()
