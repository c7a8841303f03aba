#include "pebs/engines/journal.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace skidproof::lab {
namespace {

constexpr uint64_t kPage = 4096;
// How far behind an instruction its basic block may reach.
constexpr uint64_t kLongestBlockBytes = engines::Observer::kLongestBlock * 15;
// In the file, beside the kinds of an entry.
constexpr uint64_t kPageFollows = 0x100;
constexpr uint64_t kMostAccesses = 64;

uint64_t tag(JournalEntry::Kind kind) { return static_cast<uint64_t>(kind); }

class Reader {
 public:
  explicit Reader(std::FILE* file) : file_(file) {}
  // False at the end.
  bool get(void* into, size_t bytes) { return std::fread(into, 1, bytes, file_) == bytes; }
  bool get(uint64_t& value) { return get(&value, sizeof value); }
  bool get_bool(bool& value) {
    uint64_t word = 0;
    if (!get(word)) return false;
    value = word != 0;
    return true;
  }
  bool instruction(JournalEntry& entry) {
    uint64_t accesses = 0;
    if (!get(entry.executed.ip) || !get(entry.executed.next_ip) ||
        !get_bool(entry.executed.taken) || !get_bool(entry.executed.writes_pmu) ||
        !get(entry.executed.repetitions) || !get(accesses) || accesses > kMostAccesses)
      return false;
    entry.accesses.resize(accesses);
    for (engines::SeenAccess& a : entry.accesses) {
      uint64_t bytes = 0;
      if (!get(a.address) || !get(bytes) || !get_bool(a.load) || !get_bool(a.store)) return false;
      a.bytes = static_cast<uint32_t>(bytes);
    }
    for (uint64_t& value : entry.after.gpr) {
      if (!get(value)) return false;
    }
    return get(entry.after.flags) && get(entry.after.ip);
  }

 private:
  std::FILE* file_;
};

}  // namespace

Expected<std::unique_ptr<JournalWriter>> JournalWriter::create(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return fail(ErrorCode::kIo, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
  return std::unique_ptr<JournalWriter>(new JournalWriter(file));
}

void JournalWriter::begin(uint64_t seed) {
  put(tag(JournalEntry::Kind::kBegin));
  put(seed);
}

void JournalWriter::wrote(uint32_t msr, uint64_t value) {
  put(tag(JournalEntry::Kind::kWrite));
  put(msr);
  put(value);
}

void JournalWriter::watching(uint64_t tsc) {
  put(tag(JournalEntry::Kind::kWatching));
  put(tsc);
}

void JournalWriter::lvt(uint64_t entry) {
  put(tag(JournalEntry::Kind::kLvt));
  put(entry);
}

void JournalWriter::put_page(uint64_t address, engines::CodeMemory& memory) {
  const uint64_t page = address & ~(kPage - 1);
  if (!pages_.insert(page).second) return;
  std::array<std::byte, kPage> bytes;
  if (memory.code(page, bytes) != bytes.size()) return;
  put(kPageFollows);
  put(page);
  put(bytes.data(), bytes.size());
}

void JournalWriter::executed(const engines::Executed& executed, const model::Registers& after,
                             engines::CodeMemory& memory) {
  put_page(executed.ip, memory);
  put_page(executed.ip + kLongestBlockBytes, memory);
  put(tag(JournalEntry::Kind::kInstruction));
  put(executed.ip);
  put(executed.next_ip);
  put(uint64_t{executed.taken});
  put(uint64_t{executed.writes_pmu});
  put(executed.repetitions);
  put(executed.accesses.size());
  for (const engines::SeenAccess& a : executed.accesses) {
    put(a.address);
    put(a.bytes);
    put(uint64_t{a.load});
    put(uint64_t{a.store});
  }
  put(after.gpr.data(), sizeof after.gpr);
  put(after.flags);
  put(after.ip);
}

Expected<std::vector<Journal>> read_journals(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (file == nullptr) {
    return fail(ErrorCode::kIo, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  Reader reader(file.get());
  auto code = std::make_shared<CodePages>();
  std::vector<Journal> journals;
  uint64_t kind = 0;
  while (reader.get(kind)) {
    bool whole = false;
    uint64_t number = 0;
    JournalEntry entry;
    if (kind == kPageFollows) {
      whole = reader.get(number) && reader.get((*code)[number].data(), kPage);
    } else if (kind == tag(JournalEntry::Kind::kBegin)) {
      whole = reader.get(number);
      journals.push_back({.seed = number, .entries = {}, .code = code});
    } else if (kind <= tag(JournalEntry::Kind::kInstruction)) {
      entry.kind = static_cast<JournalEntry::Kind>(kind);
      if (entry.kind == JournalEntry::Kind::kInstruction) {
        whole = reader.instruction(entry);
      } else {
        if (entry.kind == JournalEntry::Kind::kWrite) {
          whole = reader.get(number) && reader.get(entry.value);
          entry.msr = static_cast<uint32_t>(number);
        } else {
          whole = reader.get(entry.value);
        }
      }
      // What came before the first beginning is nobody's.
      if (whole && !journals.empty()) journals.back().entries.push_back(std::move(entry));
    }
    if (!whole) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is no journal of a lab, or ends in the middle", path));
    }
  }
  return journals;
}

}  // namespace skidproof::lab
