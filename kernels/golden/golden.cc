// Keeps the disassembly of every kernel: `test` compares with the files, `rebase` writes them anew.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/jit/disasm.h"
#include "kernels/kernel.h"

namespace {

namespace fs = std::filesystem;
using skidproof::Expected;

struct Variant {
  const char* kernel;
  const char* label;
  const char* parameters;
  skidproof::Mode mode = skidproof::Mode::kLong;
};

// Beside each kernel at its defaults. One of each operand form, where the encodings differ.
constexpr Variant kVariants[] = {
    {"fused_branch", "reg_imm", "first=add,condition=l,form=reg_imm"},
    {"fused_branch", "mem_reg", "condition=b,form=mem_reg,taken=0"},
    {"fused_branch", "mem_imm", "form=mem_imm"},
    {"fused_branch", "test_mem_reg", "first=test,condition=s,form=mem_reg"},
    {"fused_branch", "written_memory", "first=sub,condition=g,form=mem_imm"},
    {"fused_branch", "inc_memory", "first=inc,condition=ne,form=mem_reg"},
    {"fused_branch", "apart", "apart=1,pairs=2"},
    {"fused_branch", "spacing", "first=test,condition=ne,taken=0,spacing=4"},
    {"fused_branch", "joined", "taken=0,spacing=5,nop_bytes=4,joined=1"},
    {"fused_branch", "reset_nops", "first=add,apart=1,reset_nops=1"},
    {"fused_branch", "mov_test", "taken=0,apart=1,spacing=5,nop_bytes=2,joined=1,filler=mov_test"},
    {"taken_jumps", "offset", "jumps=3,spacing=32,offset=20,run=2,kind=jcc"},
    {"taken_jumps", "entry", "jumps=3,entry=data,skip=1"},
    {"load_stream", "32", "width=32"},
    {"store_stream", "8_nontemporal", "width=8,kind=nontemporal"},
    {"store_stream", "32_nontemporal", "width=32,kind=nontemporal"},
    {"call_return", "deep", "depth=3"},
    {"instruction_table", "independent", "instruction=lea_3,order=independent,copies=8"},
    {"instruction_table", "div64", "instruction=div64,copies=2"},
    {"instruction_table", "avx", "instruction=vfmadd_256,copies=2"},
    {"miss_window", "mixed", "filler=mixed"},
    {"miss_window", "mixed_pairs", "filler=mixed_pairs"},
    {"miss_window", "waiting_vector", "filler=waiting_vector,count=4"},
    {"sparse_event", "not_taken", "event=not_taken,spacing=8"},
    {"sparse_event", "taken", "event=taken,spacing=8"},
    {"sparse_event", "32_bit", "spacing=8", skidproof::Mode::kProtected32},
    {"call_return", "32_bit", "depth=2", skidproof::Mode::kProtected32},
    {"branch_stream", "32_bit", "", skidproof::Mode::kProtected32},
    {"store_stream", "32_bit", "kind=nontemporal", skidproof::Mode::kProtected32},
};

constexpr skidproof::Placement kPlacement{
    .code_address = 0x10000000, .data_address = 0x20000000, .seed = 1};

Expected<std::string> golden_text(const std::string& kernel, const std::string& parameters,
                                  skidproof::Mode mode = skidproof::Mode::kLong) {
  const skidproof::Kernel* found = SKIDPROOF_TRY(skidproof::find_kernel(kernel));
  skidproof::Params params = SKIDPROOF_TRY(skidproof::Params::parse(found->parameters, parameters));
  skidproof::Placement placement = kPlacement;
  placement.mode = mode;
  skidproof::Program program = SKIDPROOF_TRY(skidproof::generate(*found, params, placement));
  return skidproof::listing(program);
}

// File name to content, for everything that this program keeps.
Expected<std::map<std::string, std::string>> all_texts() {
  std::map<std::string, std::string> out;
  for (const auto& [name, kernel] : skidproof::kernels()) {
    out[name + ".txt"] = SKIDPROOF_TRY(golden_text(name, ""));
  }
  for (const Variant& v : kVariants) {
    out[fmt::format("{}-{}.txt", v.kernel, v.label)] =
        SKIDPROOF_TRY(golden_text(v.kernel, v.parameters, v.mode));
  }
  return out;
}

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") out.push_back(entry.path().filename().string());
  }
  return out;
}

std::optional<std::string> read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void print_first_difference(const std::string& kept, const std::string& made) {
  std::istringstream a(kept);
  std::istringstream b(made);
  std::string left;
  std::string right;
  for (int line = 1;; ++line) {
    bool more_left = static_cast<bool>(std::getline(a, left));
    bool more_right = static_cast<bool>(std::getline(b, right));
    if (!more_left && !more_right) return;
    if (more_left && more_right && left == right) continue;
    fmt::print("  line {}\n    kept      {}\n    generated {}\n", line, more_left ? left : "(end)",
               more_right ? right : "(end)");
    return;
  }
}

int test(const fs::path& folder, const std::map<std::string, std::string>& texts) {
  int differences = 0;
  for (const auto& [name, made] : texts) {
    std::optional<std::string> kept = read(folder / name);
    if (kept == made) continue;
    ++differences;
    fmt::print("{}: {}\n", name, kept ? "differs" : "is missing");
    if (kept) print_first_difference(*kept, made);
  }
  for (const std::string& name : files_in(folder)) {
    if (texts.contains(name)) continue;
    ++differences;
    fmt::print("{}: belongs to no kernel\n", name);
  }
  if (differences == 0) {
    fmt::print("{} listings are as kept\n", texts.size());
    return 0;
  }
  fmt::print("{} differences; if they are meant, run: kernels_golden rebase {}\n", differences,
             folder.string());
  return 1;
}

int rebase(const fs::path& folder, const std::map<std::string, std::string>& texts) {
  for (const std::string& name : files_in(folder)) {
    if (!texts.contains(name)) fs::remove(folder / name);
  }
  for (const auto& [name, made] : texts) {
    std::ofstream out(folder / name, std::ios::binary);
    out << made;
    if (!out.flush()) {
      fmt::print(stderr, "kernels_golden: cannot write {}\n", (folder / name).string());
      return 2;
    }
  }
  fmt::print("{} listings written to {}\n", texts.size(), folder.string());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string verb = argc == 3 ? argv[1] : "";
  if (verb != "test" && verb != "rebase") {
    fmt::print(stderr, "usage: kernels_golden test|rebase FOLDER   (kernels/golden)\n");
    return 64;
  }
  fs::path folder = argv[2];
  if (!fs::is_directory(folder)) {
    fmt::print(stderr, "kernels_golden: {} is not a folder\n", folder.string());
    return 64;
  }
  auto texts = all_texts();
  if (!texts) {
    fmt::print(stderr, "kernels_golden: {}\n", texts.error().text());
    return 2;
  }
  return verb == "test" ? test(folder, *texts) : rebase(folder, *texts);
}
