// Messages, documents and files that came with the program.
#include "harness/cli/verb.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "harness/cli/text.h"
#include "pebs/arch/near_match.h"

namespace skidproof::cli {

void add_json(Command verb, std::string& path) {
  verb.option("--json", path, kJsonHelp).named("FILE");
}

int complain(int exit, std::string_view message, std::string_view advice) {
  const Text text(stderr);
  text.line(fmt::format("{} {}", text.paint(Paint::kRed, "skidproof:"), wrap(message, 2)));
  if (!advice.empty()) text.line("  " + wrap(advice, 2));
  return exit;
}

int complain(int exit, const Error& error) { return complain(exit, error.message, error.advice); }

int complain(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return complain(kExitUsage, error);
    case ErrorCode::kNotAvailable:
    case ErrorCode::kPermission:
    case ErrorCode::kUnsupported:
      return complain(kExitNothingRan, error);
    default:
      return complain(kExitHarnessFailed, error);
  }
}

std::string near_or_all(std::string_view typed, std::span<const std::string_view> known) {
  const std::vector<std::string> near = arch::near_matches(typed, known, 3);
  if (!near.empty()) return fmt::format("did you mean {}?", joined(near, " or "));
  return fmt::format("there are: {}", joined({known.begin(), known.end()}));
}

Expected<void> write_document(const std::string& path, const results::Json& document) {
  std::FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "we");
  bool good = file != nullptr;
  if (good) {
    const std::string text = document.dump(2, ' ', false, results::Json::error_handler_t::replace);
    good = std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
           std::fputc('\n', file) != EOF && std::fflush(file) == 0;
  }
  const int error = errno;
  if (file != nullptr && file != stdout) std::fclose(file);
  if (good) return {};
  return fail(ErrorCode::kIo, fmt::format("cannot write '{}': {}", path, std::strerror(error)),
              "name a file in a folder that exists, with room on its disk");
}

std::string shipped(std::string_view relative) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path binary = fs::read_symlink("/proc/self/exe", ignored);
  std::vector<fs::path> places = {binary.parent_path().parent_path() / "share" / "skidproof" /
                                  relative};
#ifdef SKIDPROOF_SOURCE_DIR
  places.push_back(fs::path(SKIDPROOF_SOURCE_DIR) / relative);
#endif
  for (const fs::path& place : places) {
    if (fs::exists(place, ignored)) return place.string();
  }
  return {};
}

const char* version() { return SKIDPROOF_VERSION; }

}  // namespace skidproof::cli
