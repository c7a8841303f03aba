// The last branches taken: the LBR stack, and the branch group of an adaptive record.
#ifndef SKIDPROOF_PEBS_MODEL_BRANCH_RING_H_
#define SKIDPROOF_PEBS_MODEL_BRANCH_RING_H_

#include <algorithm>
#include <array>
#include <cstdint>

namespace skidproof::model {

// One entry as a record holds it.
struct LastBranch {
  uint64_t from = 0, to = 0, info = 0;
};

// The info word. [Linux 6.12 asm/msr-index.h LBR_INFO_MISPRED, LBR_INFO_CYCLES]
namespace branch_info {
inline constexpr uint64_t kMispredicted = uint64_t{1} << 63;
inline constexpr uint64_t kMostCycles = 0xFFFF;
}  // namespace branch_info

class BranchRing {
 public:
  static constexpr unsigned kDepth = 32;

  // depth: 1 to kDepth.
  explicit BranchRing(unsigned depth = kDepth) : depth_(depth) {}

  void clear() { *this = BranchRing(depth_); }

  // `cycle`: core clock after the branch retired.
  void add(uint64_t from, uint64_t to, bool mispredicted, uint64_t cycle) {
    uint64_t cycles = empty_ ? 0 : std::min(cycle - last_cycle_, branch_info::kMostCycles);
    empty_ = false;
    last_cycle_ = cycle;
    newest_ = (newest_ + 1) % depth_;
    ring_[newest_] = {from, to, cycles | (mispredicted ? branch_info::kMispredicted : 0)};
  }
  // The i-th before the newest, i < kDepth; zeros where there is none.
  LastBranch back(unsigned i) const {
    return i < depth_ ? ring_[(newest_ + depth_ - i) % depth_] : LastBranch{};
  }
  // What software writes there.
  LastBranch& at_back(unsigned i) { return ring_[(newest_ + depth_ - i) % depth_]; }

  unsigned depth() const { return depth_; }
  unsigned newest() const { return newest_; }
  void set_newest(unsigned entry) { newest_ = entry % depth_; }

 private:
  std::array<LastBranch, kDepth> ring_{};
  unsigned depth_;
  unsigned newest_ = 0;
  bool empty_ = true;
  uint64_t last_cycle_ = 0;
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_BRANCH_RING_H_
