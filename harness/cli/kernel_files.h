// The kernel's files in /proc and /sys, or a copy of them.
#ifndef SKIDPROOF_HARNESS_CLI_KERNEL_FILES_H_
#define SKIDPROOF_HARNESS_CLI_KERNEL_FILES_H_

#include <string>
#include <string_view>
#include <vector>

namespace skidproof::cli {

// The first line of a file; empty when there is none.
std::string read_line(const std::string& path);
// All that can be read of it.
std::string read_all(const std::string& path);
// The words between spaces, tabs and line ends.
std::vector<std::string> words_in(std::string_view text);
// The chosen word of a list such as "always [madvise] never".
std::string chosen(const std::string& list);

// The tree that processes, devices and kernel are looked for in: "" is this computer's own.
struct Tree {
  std::string root;

  bool own() const { return root.empty(); }
  std::string path(std::string_view absolute) const { return root + std::string(absolute); }
  std::string line(std::string_view absolute) const { return read_line(path(absolute)); }
  bool has(std::string_view absolute) const;
  std::string release() const { return line("/proc/sys/kernel/osrelease"); }  // of the kernel
};

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_KERNEL_FILES_H_
