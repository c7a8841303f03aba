#include "kernels/jit/executable.h"

#include <fmt/format.h>

namespace skidproof {

Expected<void> check_executable(const Program& program, bool code_held, bool data_held) {
  for (Isa isa : program.needs) {
    if (host_supports(isa)) continue;
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("{} needs {}, which this CPU does not offer", program.id(), name_of(isa)),
        "choose other parameters, or a CPU that has it");
  }
  if (program.code.empty() || !code_held) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the {} code bytes of {} at {:#x} are not inside a code block of this "
                            "machine",
                            program.code.size(), program.id(), program.code_address),
                "allocate() a block for MemoryUse::kCode, keep its handle, and generate the "
                "program for its address");
  }
  if (program.entry < program.code_address ||
      program.entry - program.code_address >= program.code.size()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the entry {:#x} of {} lies outside its code", program.entry, program.id()));
  }
  if (program.data_bytes != 0 && !data_held) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the {} data bytes of {} at {:#x} are not inside a block of this machine",
                    program.data_bytes, program.id(), program.data_address),
        "allocate() a block that is large enough and keep its handle");
  }
  return {};
}

}  // namespace skidproof
