// What connects Bochs with the lab's processors: CPUID and MSRs, instructions as they retire, guest memory, the local
// APIC, and the ports by which the guest talks to the host.
// Each of these needs the ones before it.
// clang-format off
#include <bochs.h>
#include <cpu/cpu.h>
#include <cpu/apic.h>
#include <cpu/cpuid.h>
#include <cpu/decoder/ia_opcodes.h>
#include <memory/memory-bochs.h>
// clang-format on
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "pebs/arch/enumeration.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/engines/lab_processor.h"
#include "pebs/engines/overhead.h"

// Not in a namespace: Bochs' macros name them.
bool skidproof_lab_watching[BX_MAX_SMP_THREADS_SUPPORTED];
bool skidproof_lab_metering = false;

namespace skidproof::lab {
namespace {

arch::CpuidLeaf state_of(unsigned cpu);

// What the guest writes to these ports the host takes. The guest's side is ci/lab.d/port.c.
enum Port : unsigned {
  kExit = 0xF4,          // the command's status
  kOutput = 0x5E1,       // its standard output …
  kError = 0x5E2,        // … and error, byte by byte
  kResults = 0x5E3,      // a tar archive of what it left behind
  kNewModels = 0x5E4,    // 32 bits: every processor's models begin again with this seed
  kDefects = 0x5E5,      // a line: every processor's models begin again, broken like that
  kSnapshot = 0x5E6,     // a tar archive of what it has left so far …
  kSnapshotEnd = 0x5E7,  // … which is whole now
  kAttack = 0x5E8,       // a line: see Attack
  kPretence = 0x5E9      // a line: see Pretence
};

constexpr int kHarnessFailed = 2, kBadUsage = 64;
[[noreturn]] void stop(const char* message, int code = kHarnessFailed) {
  std::fprintf(stderr, "skidproof lab: %s\n", message);
  std::fflush(nullptr);
  _exit(code);
}

// Where the command's streams and files go: descriptors 3 and 4, and files in $SKIDPROOF_LAB_OUT.
class Outlet {
 public:
  static Outlet& get() {
    static Outlet outlet;
    return outlet;
  }
  void put(unsigned port, uint8_t byte) {
    if (port == kResults) {
      if (results_ == nullptr) results_ = open("results.tar");
      std::fputc(byte, results_);
      return;
    }
    std::string& line = port == kOutput ? output_ : error_;
    line.push_back(static_cast<char>(byte));
    if (byte == '\n' || line.size() >= 4096) flush(port == kOutput ? 3 : 4, line);
  }
  void snapshot(uint8_t byte) { snapshot_.push_back(static_cast<char>(byte)); }
  // Seen whole or not at all.
  void keep_snapshot() {
    if (results_ != nullptr) return;  // they come whole
    leave("snapshot.tar", std::exchange(snapshot_, {}));
    if (std::rename(path_of("snapshot.tar").c_str(), path_of("results.tar").c_str()) != 0) {
      stop("results.tar could not be written");
    }
  }
  void leave(const char* name, const std::string& text) {
    std::FILE* file = open(name);
    std::fwrite(text.data(), 1, text.size(), file);
    if (std::fclose(file) != 0) stop((std::string(name) + " could not be written").c_str());
  }
  [[noreturn]] void finish(const char* file, const std::string& text) {
    flush(3, output_);
    flush(4, error_);
    if (results_ != nullptr && std::fclose(results_) != 0) stop("results.tar could not be written");
    leave(file, text + "\n");
    std::fflush(nullptr);
    _exit(0);
  }

 private:
  static std::string path_of(const char* name) {
    const char* folder = std::getenv("SKIDPROOF_LAB_OUT");
    return std::string(folder != nullptr ? folder : ".") + "/" + name;
  }
  std::FILE* open(const char* name) {
    const std::string path = path_of(name);
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) stop(("cannot write " + path).c_str());
    return file;
  }
  static void flush(int descriptor, std::string& text) {
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = write(descriptor, text.data() + done, text.size() - done);
      if (n <= 0) break;  // nobody reads it any more
      done += static_cast<size_t>(n);
    }
    text.clear();
  }

  std::string output_, error_, snapshot_;
  std::FILE* results_ = nullptr;
};

constexpr uint64_t kPage = 4096;

// Where Linux has its own IDT, whatever the CPU. [Documentation/x86/x86_64/mm.rst: cpu_entry_area mapping]
constexpr bool is_of_linux(uint64_t idt) {
  return idt >= 0xFFFF'FE00'0000'0000 && idt < 0xFFFF'FE80'0000'0000;
}

Overhead overhead;

// An interrupt that no device here raises by itself, at an instruction that the guest counts to: the Nth that a CPU
// begins, from the guest's line on, while its IDT is not Linux', or in a module of Linux', there each address once. The
// line:
//   KIND N CPU      once
//   KIND N CPU +M   and again when the CPU has begun M instructions more, wherever they are
//   KIND N CPU *M   and again at each Mth of such instructions behind it
//   watch 0 CPU     none
//   none            none, and nothing is measured
// An NMI, a PMI and an SMI come behind that instruction, a machine check in front of it; lvt is somebody else who
// writes the entry of the local APIC: an NMI, unmasked. Meanwhile the times are measured in which that CPU has its
// interrupts off.
// CPUID leaf kLeaf tells the guest in EAX how often it came, in EBX how many such instructions there have been, and in
// EDX:ECX the address of the last one that was met; its subleaf 1 in EDX:ECX the longest of those times in which the
// IDT was not Linux', in ticks of the TSC, and in EAX their number; its subleaf 2 + n how CPU n stands: see state_of.
class Attack {
 public:
  static constexpr Bit32u kLeaf = arch::cpuid::kVirtualLabLeaves + 0x300;
  static constexpr Bit32u kStates = 2;
  enum class Kind { kNone, kWatch, kNmi, kMachineCheck, kPmi, kSmi, kLvt };

  void take(char c) {
    if (c != '\n') {
      line_.push_back(c);
      return;
    }
    const std::string line = std::exchange(line_, {});
    *this = Attack();
    if (line == "none") return;
    char kind[8] = {}, how = 0;
    const int fields = std::sscanf(line.c_str(), "%7s %" SCNu64 " %u %c%" SCNu64, kind, &wanted_,
                                   &cpu_, &how, &again_);
    constexpr int kOnce = 3, kAgain = 5;
    if (fields != kOnce && (fields != kAgain || (how != '+' && how != '*') || again_ == 0)) {
      stop("an attack is not of the form KIND N CPU, with +M or *M behind it", kBadUsage);
    }
    repeats_ = how == '*';
    kind_ = kind_of(kind);
    if (kind_ == Kind::kNone) stop(("there is no attack " + line).c_str(), kBadUsage);
  }
  bool armed(unsigned cpu) const { return kind_ != Kind::kNone && cpu == cpu_; }
  // A CPU is about to execute this instruction: what is to come now.
  Kind begins(uint64_t ip, uint64_t idt) {
    // Where Linux has its modules; without CONFIG_RANDOMIZE_BASE they begin there, else above, and with nokaslr the kernel
    // itself ends below both. [Documentation/x86/x86_64/mm.rst: module mapping space]
    constexpr uint64_t kModules = 0xFFFF'FFFF'A000'0000, kModulesEnd = 0xFFFF'FFFF'FF00'0000;
    const bool place =
        !is_of_linux(idt) || (ip >= kModules && ip < kModulesEnd && met_.insert(ip).second);
    seen_ += place ? 1 : 0;
    if (wanted_ == 0) return Kind::kNone;
    bool now = place && came_ == 0 && seen_ == wanted_;
    if (came_ != 0 && again_ != 0 && (place || !repeats_)) now = ++since_ == again_;
    if (!now) return Kind::kNone;
    ++came_;
    since_ = 0;
    if (!repeats_ && came_ > 1) again_ = 0;
    at_ = ip;
    return kind_;
  }
  // The same instruction: whether interrupts are off, and by which IDT one would come.
  template <class Clock>
  void measure(bool off, uint64_t idt, Clock clock) {
    if (!off && !off_) return;
    if (off && !off_) {
      begun_ = clock();
      ours_ = false;
    } else if (!off && ours_) {
      longest_ = std::max(longest_, clock() - begun_);
      ++windows_;
    }
    off_ = off;
    ours_ |= !is_of_linux(idt);
  }
  arch::CpuidLeaf answer(uint32_t subleaf) const {
    const auto pair = [](uint32_t eax, uint32_t ebx, uint64_t both) {
      return arch::CpuidLeaf{eax, ebx, static_cast<uint32_t>(both),
                             static_cast<uint32_t>(both >> 32)};
    };
    return subleaf == 1 ? pair(windows_, 0, longest_)
                        : pair(came_, static_cast<uint32_t>(seen_), at_);
  }

 private:
  static Kind kind_of(std::string_view word) {
    constexpr std::pair<std::string_view, Kind> kKinds[] = {
        {"watch", Kind::kWatch}, {"nmi", Kind::kNmi}, {"mc", Kind::kMachineCheck},
        {"pmi", Kind::kPmi},     {"smi", Kind::kSmi}, {"lvt", Kind::kLvt}};
    for (const auto& [name, kind] : kKinds) {
      if (name == word) return kind;
    }
    return Kind::kNone;
  }

  std::string line_;
  std::unordered_set<uint64_t> met_;
  Kind kind_ = Kind::kNone;
  uint64_t wanted_ = 0, seen_ = 0, at_ = 0, again_ = 0, since_ = 0;
  unsigned cpu_ = 0;
  uint32_t came_ = 0;
  bool repeats_ = false;

  bool off_ = false, ours_ = false;
  uint64_t begun_ = 0, longest_ = 0;
  uint32_t windows_ = 0;
} attack;

// What others who use performance monitoring would have done to every CPU, for who must notice. The line:
//   perfmon N    CPUID.0AH says version N
//   msr N VALUE  RDMSR of N answers that; both hexadecimal
//   cr4 BITS     these bits of CR4 become the other way round, hexadecimal
//   lvt VALUE    the local APIC's entry for performance counters, hexadecimal
//   none         the first two end
struct Pretence {
  std::string line;
  uint32_t perfmon_version = 0;
  uint32_t msr = 0;
  uint64_t value = 0;
} pretence;

// What a CPU has read of the TSC last: none reads less afterwards.
uint64_t last_tsc = 0;

// What counted cores' time has moved each CPU's TSC by. IA32_TSC_ADJUST knows nothing of it: Linux looks into that
// once a second, and puts back what no software wrote. [SDM 17.17.3]
std::array<int64_t, BX_MAX_SMP_THREADS_SUPPORTED> core_time = {};

// One emulated CPU as a processor sees it.
class Cpu final : public Host {
 public:
  explicit Cpu(BX_CPU_C& cpu) : cpu_(cpu) {}

  bool read(uint64_t address, std::span<std::byte> into) override {
    return in_pages(address, into.size(), [&](bx_phy_address at, size_t from, unsigned bytes) {
      BX_MEM(0)->readPhysicalPage(&cpu_, at, bytes, into.data() + from);
    });
  }
  bool write(uint64_t address, std::span<const std::byte> from) override {
    constexpr size_t kField = 8;  // of the DS area: what is longer is a record
    if (from.size() > kField) meter_.record();
    std::vector<std::byte> copy(from.begin(),
                                from.end());  // Bochs takes a pointer to what it may change
    return in_pages(address, copy.size(), [&](bx_phy_address at, size_t begin, unsigned bytes) {
      BX_MEM(0)->writePhysicalPage(&cpu_, at, bytes, copy.data() + begin);
    });
  }
  bool write_physical(uint64_t address, std::span<const std::byte> from) override {
    if (from.size() > BX_MEM(0)->get_memory_len() || !is_memory(address + from.size() - 1)) {
      return false;
    }
    meter_.record();
    std::vector<std::byte> copy(from.begin(), from.end());
    for (size_t done = 0; done < copy.size();) {
      const size_t part = std::min<size_t>(copy.size() - done, kPage - (address + done) % kPage);
      BX_MEM(0)->writePhysicalPage(&cpu_, address + done, static_cast<unsigned>(part),
                                   copy.data() + done);
      done += part;
    }
    return true;
  }
  size_t code(uint64_t address, std::span<std::byte> into) override {
    size_t done = 0;
    while (done < into.size()) {
      const size_t bytes = std::min<size_t>(into.size() - done, kPage - (address + done) % kPage);
      bx_phy_address physical;
      if (!cpu_.dbg_xlate_linear2phy(address + done, &physical)) break;
      if (!is_memory(physical) && cpu_.smm_mode()) break;
      const Bit8u* host = BX_MEM(0)->getHostMemAddr(&cpu_, physical, BX_READ);
      if (host == nullptr) break;  // a device
      std::memcpy(into.data() + done, host, bytes);
      done += bytes;
    }
    return done;
  }

  void registers(model::Registers& into) override {
    for (size_t n = 0; n < into.gpr.size(); ++n) into.gpr[n] = cpu_.gen_reg[n].rrx;
    into.flags = cpu_.read_eflags();
    into.ip = cpu_.gen_reg[BX_64BIT_REG_RIP].rrx;
  }
  void vectors(model::VectorRegisters& into) override {
    for (size_t n = 0; n < into.size(); ++n) std::memcpy(into[n].data(), &cpu_.vmm[n], 32);
  }
  uint64_t tsc() override { return cpu_.get_TSC(); }
  uint64_t set_tsc(uint64_t value) override {
    value = std::max(value, last_tsc);
    for (unsigned n = 0; n < BX_SMP_PROCESSORS; ++n) {
      core_time[n] += static_cast<int64_t>(value - BX_CPU(n)->get_TSC());
      BX_CPU(n)->set_TSC(value);
    }
    return value;
  }
  uint32_t lvt() override { return cpu_.lapic->read_aligned(BX_LAPIC_LVT_PERFMON); }
  void set_lvt(uint32_t value) override { cpu_.lapic->set_lvt_entry(BX_LAPIC_LVT_PERFMON, value); }
  void interrupt(uint32_t entry) override {
    interrupted_ = true;
    cpu_.lapic->deliver(entry & 0xFF, entry >> 8 & 7, APIC_EDGE_TRIGGERED);
  }
  void hold_interrupts() override { cpu_.inhibit_interrupts(BX_INHIBIT_INTERRUPTS); }

  uint64_t ip() const { return cpu_.gen_reg[BX_64BIT_REG_RIP].rrx; }
  bool user() const { return cpu_.sregs[BX_SEG_REG_CS].selector.rpl == 3; }
  unsigned mode() const { return cpu_.get_cpu_mode(); }
  bool is_32_bit() const { return cpu_.sregs[BX_SEG_REG_CS].cache.u.segment.d_b; }
  BX_CPU_C& bochs() { return cpu_; }

  OverheadMeter& meter() { return meter_; }
  // An NMI is delivered: as a performance monitoring interrupt when one was sent.
  void non_maskable_interrupt() {
    if (std::exchange(interrupted_, false)) meter_.interrupt(!is_of_linux(cpu_.idtr.base));
  }

 private:
  // Without paging, as in system-management mode, a linear address leads anywhere.
  static bool is_memory(bx_phy_address physical) { return physical < BX_MEM(0)->get_memory_len(); }
  // Calls `piece` with each page's part: physical address, offset, bytes. False: not all of it is mapped, and
  // nothing was done.
  template <class Piece>
  bool in_pages(uint64_t address, size_t bytes, Piece piece) {
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t done = 0; done < bytes;) {
        const size_t part = std::min<size_t>(bytes - done, kPage - (address + done) % kPage);
        bx_phy_address physical;
        if (!cpu_.dbg_xlate_linear2phy(address + done, &physical) || !is_memory(physical)) {
          return false;
        }
        if (pass == 1) piece(physical, done, static_cast<unsigned>(part));
        done += part;
      }
    }
    return true;
  }

  BX_CPU_C& cpu_;
  OverheadMeter meter_{overhead};
  bool interrupted_ = false;
};

// SKIDPROOF_LAB_HANG=N: whether this is the Nth time.
bool hangs_now() {
  static unsigned long left = [] {
    const char* value = std::getenv("SKIDPROOF_LAB_HANG");
    return value == nullptr ? 0 : std::strtoul(value, nullptr, 10);
  }();
  return left != 0 && --left == 0;
}

// The emulated CPU's own CPUID and MSRs, with performance monitoring as the microarch has it.
class Enumeration final : public bx_cpuid_t {
 public:
  Enumeration(BX_CPU_C* cpu_of_it, bx_cpuid_t* original, Processor& processor, OverheadMeter& meter)
      : bx_cpuid_t(cpu_of_it), original_(original), processor_(processor), meter_(meter) {
    for (unsigned n = 0; n < BX_ISA_EXTENSION_LAST; ++n) {
      if (original->is_cpu_extension_supported(n)) {
        ia_extensions_bitmask[n / 32] |= 1u << (n % 32);
      } else {
        ia_extensions_bitmask[n / 32] &= ~(1u << (n % 32));
      }
    }
    cpuid_function_t first{};
    original->get_cpuid_leaf(0, 0, &first);
    highest_ = first.eax;
  }
  const char* get_name() const override { return original_->get_name(); }
  void dump_cpuid() const override { original_->dump_cpuid(); }

  void get_cpuid_leaf(Bit32u function, Bit32u subfunction, cpuid_function_t* leaf) const override {
    const arch::Microarch& m = *processor_.configuration().microarch;
    constexpr Bit32u kHypervisorLeaf = 0x40000000;
    if (function == kHypervisorLeaf) {
      leaf->eax = kHypervisorLeaf + 1;
      std::memcpy(&leaf->ebx, "Skid", 4);
      std::memcpy(&leaf->ecx, "proo", 4);
      std::memcpy(&leaf->edx, "fLab", 4);
      return;
    }
    if (function == kHypervisorLeaf + 1) {
      *leaf = {};
      for (const arch::Microarch* row : arch::microarchs()) {
        if (row == &m) return;
        ++leaf->eax;
      }
      return;
    }
    using arch::cpuid::kVirtualLabLeaves;
    if (function == Attack::kLeaf) {
      answer(*leaf, subfunction < Attack::kStates ? attack.answer(subfunction)
                                                  : state_of(subfunction - Attack::kStates));
      return;
    }
    if (function == kVirtualLabLeaves + arch::cpuid::kCaches) {
      answer(*leaf,
             arch::caches_leaf(processor_.configuration().behaviour.core.caches, subfunction));
      return;
    }
    if (function == arch::cpuid::kVirtualLabWords) {
      answer(*leaf, arch::words_leaf(processor_.configuration().words, subfunction));
      return;
    }
    if (function == kVirtualLabLeaves + arch::cpuid::kFeatures) {
      const model::Behaviour& how = processor_.configuration().behaviour;
      const arch::Microarch part = model::row_of(m, how.rough);
      arch::CpuidLeaf features;
      if (m.architectural_perfmon() && subfunction == 0) features = arch::features_leaf(part);
      if (subfunction == 1 && how.extended.announced) features = arch::more_features_leaf(part);
      answer(*leaf, features);
      return;
    }
    // What only parts have that Bochs plays none of.
    const Bit32u highest = std::max<Bit32u>(highest_, arch::highest_basic_leaf(m));
    if (function == arch::cpuid::kCore) {
      answer(*leaf, arch::core_leaf(m));
      return;
    }
    if (function == arch::cpuid::kExtendedPerfmon) {
      answer(*leaf,
             model::extended_leaf(m, processor_.configuration().behaviour.extended, subfunction));
      return;
    }
    if (function > highest_ && function <= highest) {
      *leaf = {};
      return;
    }
    original_->get_cpuid_leaf(function, subfunction, leaf);
    const model::EnumerationBehaviour& wrong = processor_.configuration().behaviour.enumeration;
    const bool sibling = processor_.configuration().sibling_thread;
    auto set = [](Bit32u& word, unsigned n, bool value) {
      word = (word & ~(1u << n)) | (Bit32u{value} << n);
    };
    switch (function) {
      case 0x0:
        leaf->eax = highest;
        break;
      case arch::cpuid::kFeatures:
        // Software looks there for leaf 23H and for several types of core; all else is of the CPU that Bochs plays.
        if (subfunction == 0) {
          if (m.extended.leaf) leaf->eax = std::max<Bit32u>(leaf->eax, 1);
          leaf->edx |= m.hybrid ? arch::cpuid::kHybrid : 0;
        } else if (subfunction == 1 && m.extended.leaf) {
          const bool announced = processor_.configuration().behaviour.extended.announced;
          *leaf = {announced ? arch::more_features_leaf(m).eax : 0, 0, 0, 0};
        }
        break;
      case 0x1:
        if (!m.models.empty()) leaf->eax = signature(m.models.front());
        set(leaf->ecx, 2, m.dtes64);
        set(leaf->ecx, 4, m.branch_trace.cpl_qualified);
        set(leaf->ecx, 15, m.architectural_perfmon());
        set(leaf->ecx, 31, true);   // not silicon
        set(leaf->edx, 21, true);   // debug store
        set(leaf->edx, 22, false);  // thermal monitor: nobody answers for its registers
        set(leaf->edx, 29, false);
        set(leaf->ecx, 8, false);
        if (sibling) {
          set(leaf->edx, 28, true);
          leaf->ebx = (leaf->ebx & ~0xFF0000u) | 2u << 16;
        }
        leaf->ecx ^= wrong.wrong_features_ecx;
        leaf->edx ^= wrong.wrong_features_edx;
        break;
      case 0xB:
        // Two threads a core.
        if (sibling && subfunction == 0) *leaf = {1, 2, 1u << 8, leaf->edx};
        break;
      case 0x6:
        // Nobody answers for thermal sensors, APERF and MPERF, or the energy bias; the timer always runs.
        *leaf = {4, 0, 0, 0};
        break;
      case 0xA: {
        *leaf = {};
        if (!m.architectural_perfmon()) break;
        const auto perfmon = arch::perfmon_leaf(m, processor_.configuration().sibling_thread);
        *leaf = {perfmon.eax, perfmon.ebx, perfmon.ecx, perfmon.edx ^ wrong.wrong_perfmon_edx};
        if (pretence.perfmon_version != 0) {
          constexpr Bit32u kVersion = 0xFF;
          leaf->eax = (leaf->eax & ~kVersion) | pretence.perfmon_version;
        }
        break;
      }
      case 0x15:
      case 0x16:
        // The frequencies of the part that Bochs plays: the guest measures this machine's own instead.
        *leaf = {};
        break;
      default:
        break;
    }
  }

  int rdmsr(Bit32u index, Bit64u* value) override {
    if (pretence.msr != 0 && index == pretence.msr) {
      *value = pretence.value;
      return 1;
    }
    uint64_t read = 0;
    const Answer answer = processor_.rdmsr(index, read);
    if (answer == Answer::kNotMine) return original_->rdmsr(index, value);
    *value = read;
    return answer == Answer::kDone;
  }
  int wrmsr(Bit32u index, Bit64u value) override {
    const Answer answer = processor_.wrmsr(index, value);
    if (answer == Answer::kNotMine) return original_->wrmsr(index, value);
    if (skidproof_lab_metering && index == arch::IA32_PERF_GLOBAL_CTRL && answer == Answer::kDone) {
      meter_.enabled(value);
    }
    skidproof_lab_watching[cpu->which_cpu()] =
        processor_.watching() || meter_.watching() || attack.armed(cpu->which_cpu());
    if (index == arch::IA32_PEBS_ENABLE && value != 0 && cpu->which_cpu() == 0 && hangs_now()) {
      // Not even an NMI or an INIT wakes it; the other CPUs go on.
      cpu->enter_sleep_state(BX_CPU_C::BX_ACTIVITY_STATE_WAIT_FOR_SIPI);
    }
    return answer == Answer::kDone;
  }

 private:
  static void answer(cpuid_function_t& leaf, const arch::CpuidLeaf& with) {
    leaf = {with.eax, with.ebx, with.ecx, with.edx};
  }
  // CPUID.1:EAX. [SDM vol. 2, CPUID, Figure 3-6]
  static Bit32u signature(const arch::CpuModel& part) {
    const Bit32u stepping = part.stepping >= 0 ? static_cast<Bit32u>(part.stepping) : 0;
    return (stepping & 0xF) | (part.model & 0xFu) << 4 | (part.family & 0xFu) << 8 |
           static_cast<Bit32u>(part.model >> 4) << 16;
  }

  bx_cpuid_t* original_;
  Bit32u highest_ = 0;  // of its basic leaves
  Processor& processor_;
  OverheadMeter& meter_;
};

// SKIDPROOF_LAB_JOURNAL: a file for the journal of the first processor.
JournalWriter* journal() {
  static const std::unique_ptr<JournalWriter> kept = [] {
    const char* path = std::getenv("SKIDPROOF_LAB_JOURNAL");
    if (path == nullptr || *path == '\0') return std::unique_ptr<JournalWriter>();
    auto created = JournalWriter::create(path);
    if (!created) stop(created.error().text().c_str());
    return std::move(*created);
  }();
  return kept.get();
}

struct Unit {
  explicit Unit(const Configuration& configuration, unsigned number)
      : cpu(*BX_CPU(number)),
        processor(configuration, number, cpu),
        enumeration(BX_CPU(number), BX_CPU(number)->cpuid, processor, cpu.meter()) {
    BX_CPU(number)->cpuid = &enumeration;
    if (number == 0 && journal() != nullptr) processor.keep(*journal());
  }

  Cpu cpu;
  Processor processor;
  Enumeration enumeration;
  unsigned mode = ~0u;  // as the processor knows it
  unsigned resets = 0;
  bool lvt_touched = false;

  // The instruction that is being executed, while somebody watches.
  uint64_t ip = 0;
  bool user = false;
};

std::vector<std::unique_ptr<Unit>> units;

// What a CPU has on and where an interrupt would go, whoever asks: in EAX bit 0 an IDT that is not Linux', bit 1 a
// counter, bit 2 PEBS, bit 3 a recording of branches; in EBX the entry of its local APIC.
arch::CpuidLeaf state_of(unsigned cpu) {
  if (cpu >= units.size()) return {};
  Unit& unit = *units[cpu];
  constexpr uint64_t kRecordsBranches = 0x1C1;  // of IA32_DEBUGCTL: LBR, TR, BTS, BTINT
  const auto read = [&](uint32_t msr) {
    uint64_t value = 0;
    return unit.processor.rdmsr(msr, value) == Answer::kDone ? value : 0;
  };
  // General counters by the enable bit of their event select, fixed ones by two bits of four.
  constexpr unsigned kCounters = 8, kFixed = 32, kFixedCounters = 4, kEnableBit = 22;
  const uint64_t enabled = read(arch::IA32_PERF_GLOBAL_CTRL);
  const uint64_t fixed = read(arch::IA32_FIXED_CTR_CTRL);
  bool counts = false;
  for (unsigned n = 0; n < kCounters; ++n) {
    counts |= (enabled >> n & 1) != 0 && (read(arch::IA32_PERFEVTSEL0 + n) >> kEnableBit & 1) != 0;
  }
  for (unsigned n = 0; n < kFixedCounters; ++n) {
    counts |= (enabled >> (kFixed + n) & 1) != 0 && (fixed >> (4 * n) & 3) != 0;
  }
  uint32_t state = is_of_linux(unit.cpu.bochs().idtr.base) ? 0 : 1;
  if (counts) state |= 2;
  if (arch::sampling_counters(*unit.processor.configuration().microarch, read) != 0) state |= 4;
  if ((read(arch::IA32_DEBUGCTL) & kRecordsBranches) != 0) state |= 8;
  return {state, unit.cpu.lvt(), 0, 0};
}

const Configuration& configuration() {
  static const Configuration chosen = [] {
    auto read = configuration_from_environment();
    if (!read) stop(read.error().text().c_str(), kBadUsage);
    return *read;
  }();
  return chosen;
}

// SKIDPROOF_LAB_OVERHEAD=AROUND,HANDLER: the driver's instructions are counted, and judged by this.
const std::optional<OverheadBounds>& overhead_bounds() {
  static const std::optional<OverheadBounds> chosen = []() -> std::optional<OverheadBounds> {
    const char* value = std::getenv("SKIDPROOF_LAB_OVERHEAD");
    if (value == nullptr) return std::nullopt;
    OverheadBounds bounds;
    if (std::sscanf(value, "%" SCNu64 ",%" SCNu64, &bounds.around, &bounds.handler) != 2) {
      stop("SKIDPROOF_LAB_OVERHEAD is not of the form AROUND,HANDLER", kBadUsage);
    }
    return bounds;
  }();
  return chosen;
}

void look(unsigned cpu) {
  skidproof_lab_watching[cpu] =
      units[cpu]->processor.watching() || units[cpu]->cpu.meter().watching() || attack.armed(cpu);
}

// Instructions that Bochs executes otherwise, as members of its CPU class: nothing is added to an object.
struct OwnInstructions : BX_CPU_C {
  void rdpmc(bxInstruction_c*) {
    const auto value =
        units[bx_cpuid]->processor.rdpmc(static_cast<uint32_t>(gen_reg[BX_64BIT_REG_RCX].rrx),
                                         units[bx_cpuid]->cpu.user(), cr4.get_PCE());
    if (!value) exception(BX_GP_EXCEPTION, 0);
    gen_reg[BX_64BIT_REG_RAX].rrx = static_cast<uint32_t>(*value);
    gen_reg[BX_64BIT_REG_RDX].rrx = *value >> 32;
  }
  void rdtsc(bxInstruction_c* i) {
    before_tsc();
    RDTSC(i);
  }
  void rdtscp(bxInstruction_c* i) {
    before_tsc();
    RDTSCP(i);
  }
  void rdmsr(bxInstruction_c* i) {
    if (!is_tsc_adjust()) return RDMSR(i);
    const auto value = static_cast<uint64_t>(tsc_adjust - core_time[bx_cpuid]);
    gen_reg[BX_64BIT_REG_RAX].rrx = static_cast<uint32_t>(value);
    gen_reg[BX_64BIT_REG_RDX].rrx = value >> 32;
  }
  void wrmsr(bxInstruction_c* i) {
    if (!is_tsc_adjust()) return WRMSR(i);
    const uint64_t low = static_cast<uint32_t>(gen_reg[BX_64BIT_REG_RAX].rrx);
    const uint64_t high = static_cast<uint32_t>(gen_reg[BX_64BIT_REG_RDX].rrx);
    tsc_adjust = static_cast<int64_t>(high << 32 | low) + core_time[bx_cpuid];
  }
  bool is_tsc_adjust() {
    constexpr uint32_t kTscAdjust = 0x3B;
    return static_cast<uint32_t>(gen_reg[BX_64BIT_REG_RCX].rrx) == kTscAdjust &&
           !units[bx_cpuid]->cpu.user() && is_cpu_extension_supported(BX_ISA_TSC_ADJUST);
  }
  // Time is that of the core whose cycles are counted, on every CPU.
  void before_tsc() {
    for (const auto& unit : units) unit->processor.bring_tsc_up_to_date();
    last_tsc = std::max<uint64_t>(last_tsc, get_TSC());
  }
  // In front of the instruction that is about to be executed.
  void attacked(Attack::Kind kind) {
    Cpu& cpu = units[bx_cpuid]->cpu;
    constexpr uint32_t kUnmaskedNmi = 0x400;
    switch (kind) {
      case Attack::Kind::kNone:
      case Attack::Kind::kWatch:
        break;
      case Attack::Kind::kNmi:
        deliver_NMI();
        break;
      case Attack::Kind::kPmi:
        if (const uint32_t entry = cpu.lvt(); (entry & kMasked) == 0) {
          cpu.set_lvt(entry | kMasked);
          cpu.interrupt(entry);
        }
        break;
      case Attack::Kind::kSmi:
        deliver_SMI();
        break;
      case Attack::Kind::kLvt:
        cpu.set_lvt(kUnmaskedNmi);
        break;
      case Attack::Kind::kMachineCheck:
        exception(BX_MC_EXCEPTION, 0);
    }
  }
  static constexpr uint32_t kMasked = 0x10000;
};

template <class Member>
BxExecutePtr_tR own(Member member) {
  return static_cast<BxExecutePtr_tR>(member);
}

// One more character of a line: ids of defects, separated by commas, behind "sibling " where a second thread is to
// share the core.
void take_defects(char c) {
  static std::string line;
  if (c != '\n') {
    line.push_back(c);
    return;
  }
  constexpr std::string_view kSibling = "sibling ";
  const std::string whole = std::exchange(line, {});
  std::string_view defects = whole;
  const bool sibling = defects.starts_with(kSibling);
  if (sibling) defects.remove_prefix(kSibling.size());
  const auto behaviour = behaviour_with(*configuration().microarch, defects, configuration().rough);
  if (!behaviour) stop(behaviour.error().text().c_str(), kBadUsage);
  for (unsigned n = 0; n < units.size(); ++n) {
    units[n]->processor.become(*behaviour, sibling);
    look(n);
  }
}

// One more character of a line that Pretence describes.
void pretend(char c) {
  if (c != '\n') {
    pretence.line.push_back(c);
    return;
  }
  const std::string line = std::exchange(pretence, {}).line;
  char what[8] = {};
  uint64_t first = 0, second = 0;
  const int fields = std::sscanf(line.c_str(), "%7s %" SCNx64 " %" SCNx64, what, &first, &second);
  const std::string_view word = what;
  if (word == "perfmon" && fields == 2) {
    pretence.perfmon_version = static_cast<uint32_t>(first);
  } else if (word == "msr" && fields == 3) {
    pretence.msr = static_cast<uint32_t>(first);
    pretence.value = second;
  } else if (word == "cr4" && fields == 2) {
    for (const auto& unit : units) {
      bx_cr4_t& cr4 = unit->cpu.bochs().cr4;
      cr4.set32(cr4.get32() ^ static_cast<Bit32u>(first));
    }
  } else if (word == "lvt" && fields == 2) {
    for (const auto& unit : units) unit->cpu.set_lvt(static_cast<uint32_t>(first));
  } else if (word != "none") {
    stop(("there is no pretence " + line).c_str(), kBadUsage);
  }
}

// What the code is that retires next.
void tell_modes(Unit& unit) {
  const unsigned mode = unit.cpu.mode() << 1 | unit.cpu.is_32_bit();
  if (mode == unit.mode) return;
  unit.mode = mode;
  const bool ia32e = unit.cpu.mode() >= BX_MODE_LONG_COMPAT;
  const Mode code = unit.cpu.mode() == BX_MODE_LONG_64 ? Mode::kLong
                    : unit.cpu.is_32_bit() && unit.cpu.mode() >= BX_MODE_IA32_PROTECTED
                        ? Mode::kProtected32
                        : Mode::kReal;
  unit.processor.set_modes(ia32e, code);
}

}  // namespace
}  // namespace skidproof::lab

using namespace skidproof::lab;

void skidproof_lab_initialize(unsigned cpu) {
  skidproof_lab_metering = overhead_bounds().has_value();
  if (units.size() <= cpu) units.resize(cpu + 1);
  units[cpu] = std::make_unique<Unit>(configuration(), cpu);
}

void skidproof_lab_reset(unsigned cpu, unsigned type) {
  Unit& unit = *units[cpu];
  // The first processor is reset once, at power-on: the next time the guest has given up.
  if (cpu == 0 && ++unit.resets > 1) {
    uint32_t on = 0;
    for (unsigned n = 0; n < units.size(); ++n) on |= state_of(n).eax & ~1u;
    Outlet::get().finish("rebooted", std::to_string(on));
  }
  type == BX_RESET_HARDWARE ? unit.processor.reset() : unit.processor.init();
  look(cpu);
}

void skidproof_lab_decoded(unsigned cpu, bxInstruction_c* i) {
  units[cpu]->processor.code_changed();
  switch (i->getIaOpcode()) {
    case BX_IA_RDPMC:
      i->execute1 = own(&OwnInstructions::rdpmc);
      break;
    case BX_IA_RDMSR:
      i->execute1 = own(&OwnInstructions::rdmsr);
      break;
    case BX_IA_WRMSR:
      i->execute1 = own(&OwnInstructions::wrmsr);
      break;
    case BX_IA_RDTSC:
      i->execute1 = own(&OwnInstructions::rdtsc);
      break;
    case BX_IA_RDTSCP:
      i->execute1 = own(&OwnInstructions::rdtscp);
      break;
    default:
      break;
  }
}

void skidproof_lab_code_changed(unsigned cpu) { units[cpu]->processor.code_changed(); }

void skidproof_lab_before(unsigned cpu) {
  Unit& unit = *units[cpu];
  unit.ip = unit.cpu.ip();
  unit.user = unit.cpu.user();
  if (unit.processor.watching()) {
    tell_modes(unit);
    unit.processor.before(unit.ip, unit.user);
  }
  if (attack.armed(cpu)) {
    BX_CPU_C& bochs = unit.cpu.bochs();
    attack.measure(bochs.get_IF() == 0, bochs.idtr.base, [&unit] {
      unit.processor.bring_tsc_up_to_date();
      return unit.cpu.tsc();
    });
    const Attack::Kind kind = attack.begins(unit.ip, bochs.idtr.base);
    if (kind != Attack::Kind::kNone) static_cast<OwnInstructions&>(bochs).attacked(kind);
  }
}

void skidproof_lab_after(unsigned cpu, bxInstruction_c* i) {
  Unit& unit = *units[cpu];
  if (std::exchange(unit.lvt_touched, false)) [[unlikely]]
    unit.processor.lvt_written();
  constexpr unsigned kRep = 2;  // and above: a REP prefix, as Bochs has it decoded
  const bool repeats = i->lockRepUsedValue() >= kRep;
  // An interrupt between two repetitions: the instruction has not retired.
  if (repeats && unit.processor.is_at(unit.cpu.ip())) {
    unit.processor.interrupted_repetition();
    return;
  }
  if (unit.processor.watching()) unit.processor.after(unit.cpu.ip(), repeats);
  if (unit.cpu.meter().watching() && !(repeats && unit.ip == unit.cpu.ip())) {
    unit.cpu.meter().retired(unit.ip, unit.user);
  }
  look(cpu);
}

void skidproof_lab_repetition(unsigned cpu) { units[cpu]->processor.repetition(); }
void skidproof_lab_halted(unsigned cpu) { units[cpu]->processor.halt(); }
void skidproof_lab_branch_taken(unsigned cpu) { units[cpu]->processor.branch_taken(); }

void skidproof_lab_access(unsigned cpu, bx_address address, unsigned bytes, unsigned how) {
  units[cpu]->processor.access(address, bytes, how == BX_READ || how == BX_RW,
                               how == BX_WRITE || how == BX_RW);
}

void skidproof_lab_wrmsr(unsigned cpu, unsigned msr, Bit64u value) {
  constexpr unsigned kApicBase = 0x1B;
  constexpr Bit64u kEnable = 0x800;
  // Bochs takes a local APIC that was disabled once for one that cannot be enabled again.
  if (msr == kApicBase && (value & kEnable) != 0) BX_CPU(cpu)->msr.apicbase |= kEnable;
  if (skidproof_lab_metering) units[cpu]->cpu.meter().write_msr(msr);
}

void skidproof_lab_hardware_interrupt(unsigned cpu, unsigned vector) {
  constexpr unsigned kNmi = 2;
  if (vector == kNmi) units[cpu]->cpu.non_maskable_interrupt();
  look(cpu);
}
void skidproof_lab_exception(unsigned cpu, unsigned vector) {
  units[cpu]->cpu.meter().exception(vector);
}
void skidproof_lab_far_branch(unsigned cpu, unsigned what) {
  OverheadMeter& meter = units[cpu]->cpu.meter();
  if (what == BX_INSTR_IS_IRET) meter.interrupt_return();
  if (what == BX_INSTR_IS_SYSCALL || what == BX_INSTR_IS_SYSENTER) meter.system_call();
}

// An access at the offset of the local APIC's entry for performance counters: look at it behind this instruction.
void skidproof_lab_may_write_lvt(unsigned cpu, bx_phy_address address) {
  if (!BX_CPU(cpu)->lapic->is_selected(address)) return;
  units[cpu]->lvt_touched = true;
  skidproof_lab_watching[cpu] = true;
}

void skidproof_lab_output(unsigned port, unsigned bytes, unsigned value) {
  switch (port) {
    case kOutput:
    case kError:
    case kResults:
      for (unsigned n = 0; n < bytes; ++n) {
        Outlet::get().put(port, static_cast<uint8_t>(value >> (8 * n)));
      }
      break;
    case kSnapshot:
      for (unsigned n = 0; n < bytes; ++n) {
        Outlet::get().snapshot(static_cast<uint8_t>(value >> (8 * n)));
      }
      break;
    case kSnapshotEnd:
      Outlet::get().keep_snapshot();
      break;
    case kNewModels:
      for (unsigned n = 0; n < units.size(); ++n) {
        units[n]->processor.start_again(value);
        look(n);
      }
      break;
    case kDefects:
      for (unsigned n = 0; n < bytes; ++n) take_defects(static_cast<char>(value >> (8 * n)));
      break;
    case kAttack:
      for (unsigned n = 0; n < bytes; ++n) attack.take(static_cast<char>(value >> (8 * n)));
      for (unsigned n = 0; n < units.size(); ++n) look(n);
      break;
    case kPretence:
      for (unsigned n = 0; n < bytes; ++n) pretend(static_cast<char>(value >> (8 * n)));
      break;
    case kExit:
      if (skidproof_lab_metering)
        Outlet::get().leave("overhead", overhead.report(*overhead_bounds()));
      Outlet::get().finish("status", std::to_string(value & 0xFF));
    default:
      break;
  }
}
