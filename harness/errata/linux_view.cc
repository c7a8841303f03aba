#include "harness/errata/linux_view.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace skidproof::errata {
namespace {

namespace fs = std::filesystem;

constexpr char kCpus[] = "/sys/devices/system/cpu";

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Names in a folder, in order; none where it cannot be read.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    found.push_back(at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void take_microcode(const std::string& root, LinuxView& view) {
  unsigned cpus = 0;
  for (const fs::path& cpu : entries_of(root + kCpus)) {
    const std::string name = cpu.filename().string();
    if (!name.starts_with("cpu") || name.find_first_not_of("0123456789", 3) != std::string::npos ||
        name.size() == 3) {
      continue;
    }
    ++cpus;
    const std::string text = first_line(cpu / "microcode/version");
    uint32_t revision = 0;
    if (!text.starts_with("0x")) continue;
    std::from_chars(text.data() + 2, text.data() + text.size(), revision, 16);
    if (revision != 0) ++view.microcode[revision];
  }
  if (view.microcode.empty()) {
    view.notes.push_back("no microcode revision: " + root + kCpus + "/cpu*/microcode/version");
  } else if (view.microcode.size() > 1) {
    view.notes.push_back(fmt::format("{} CPUs run different microcode: the lowest counts", cpus));
  }
}

// Lines with which Linux tells of the PMU's quirks. [Linux 6.12 arch/x86/events]
bool speaks_of_the_pmu(std::string_view line) {
  constexpr std::array<std::string_view, 9> kWords = {
      "PMU erratum", "CPU erratum", "PEBS", "Performance Events", "clovertown", "perfevents",
      "PMU driver",  "microcode: ", "BTS"};
  if (line.starts_with("core: ")) return true;  // of arch/x86/events/intel/core.c
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view word) {
    return line.find(word) != std::string_view::npos;
  });
}

void take_log(const std::string& path, LinuxView& view) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    view.notes.push_back(
        fmt::format("the kernel's log cannot be read ({}: {})", path, std::strerror(errno)));
    return;
  }
  constexpr size_t kMostLines = 20;
  std::array<char, 8192> buffer;
  std::string text;
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // messages that were overwritten
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
    size_t end = 0;
    while ((end = text.find('\n')) != std::string::npos) {
      std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      // A message of /dev/kmsg has its facts before a semicolon.
      if (const size_t at = line.find(';'); at != std::string::npos && line.find(',') < at) {
        line.erase(0, at + 1);
      }
      if (speaks_of_the_pmu(line) && view.pmu_lines.size() < kMostLines) {
        view.pmu_lines.push_back(std::move(line));
      }
    }
  }
  ::close(fd);
}

}  // namespace

LinuxView linux_view(const std::string& root, const std::string& kernel_log) {
  LinuxView view;
  view.release = first_line(root + "/proc/sys/kernel/osrelease");
  for (const fs::path& file : entries_of(root + kCpus + "/vulnerabilities")) {
    view.vulnerabilities[file.filename().string()] = first_line(file);
  }
  if (view.vulnerabilities.empty()) {
    view.notes.push_back("no verdicts of Linux: " + root + kCpus + "/vulnerabilities");
  }
  const std::string active = first_line(root + kCpus + "/smt/active");
  if (active == "0" || active == "1") view.hyper_threading = active == "1";
  take_microcode(root, view);
  for (const char* pmu : {"cpu", "cpu_core", "cpu_atom"}) {
    const fs::path folder = root + "/sys/devices/" + pmu;
    std::error_code error;
    if (std::string_view(pmu) != "cpu" && fs::is_directory(folder, error)) {
      view.core_pmus.emplace_back(pmu);
    }
    for (const char* name : {"allow_tsx_force_abort", "freeze_on_smi"}) {
      const std::string value = first_line(folder / name);
      if (!value.empty()) view.switches[fmt::format("{}/{}", pmu, name)] = value;
    }
  }
  take_log(kernel_log, view);
  return view;
}

results::Json json_of(const LinuxView& view) {
  results::Json microcode = results::Json::object();
  for (const auto& [revision, cpus] : view.microcode) microcode[results::hex(revision)] = cpus;
  return {{"release", view.release},
          {"vulnerabilities", view.vulnerabilities},
          {"microcode_cpus", std::move(microcode)},
          {"hyper_threading",
           view.hyper_threading ? results::Json(*view.hyper_threading) : results::Json(nullptr)},
          {"pmu_lines", view.pmu_lines},
          {"switches", view.switches},
          {"core_pmus", view.core_pmus},
          {"notes", view.notes}};
}

}  // namespace skidproof::errata
