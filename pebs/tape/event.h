// One call of a section, taken apart and put together.
#ifndef SKIDPROOF_PEBS_TAPE_EVENT_H_
#define SKIDPROOF_PEBS_TAPE_EVENT_H_

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "pebs/tape/bytes.h"
#include "pebs/tape/fields.h"
#include "pebs/tape/tape.h"

namespace skidproof::tape {

using Bytes = std::span<const std::byte>;

struct Event {
  Call call = Call::kCpuid;
  Bytes question;  // MsrRead, MsrWrite, Errand …
  Bytes program;   // of a run whose program is new in the section
  Bytes before;    // what the test had changed in memory
  Bytes answer;    // Expected of the answer
  Bytes after;     // what the machine changed in memory
};

inline bool same(Bytes a, Bytes b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

inline void put_event(Encoder& out, const Event& event) {
  encode(out, event.call);
  for (Bytes part : {event.question, event.program, event.before, event.answer, event.after}) {
    out.blob(part);
  }
}
inline Event take_event(Decoder& in) {
  Event event;
  event.call = decode<Call>(in);
  for (Bytes* part :
       {&event.question, &event.program, &event.before, &event.answer, &event.after}) {
    *part = in.blob();
  }
  return event;
}

// 1 and the value, or 0 and the Error.
template <typename T>
void encode_answer(Encoder& out, const Expected<T>& answer) {
  encode(out, answer.has_value());
  if (!answer) return encode(out, answer.error());
  if constexpr (!std::is_void_v<T>) encode(out, *answer);
}
template <typename T>
Expected<T> decode_answer(Decoder& in) {
  if (!decode<bool>(in)) return tl::make_unexpected(decode<Error>(in));
  if constexpr (std::is_void_v<T>) {
    return {};
  } else {
    return decode<T>(in);
  }
}

// The programs of a section, as they are encoded, by their numbers.
class Programs {
 public:
  // The next number where there is no such program.
  size_t number_of(Bytes program) const {
    const auto found = std::find_if(all_.begin(), all_.end(),
                                    [&](const auto& each) { return same(each, program); });
    return static_cast<size_t>(found - all_.begin());
  }
  void add(Bytes program) { all_.emplace_back(program.begin(), program.end()); }
  size_t size() const { return all_.size(); }
  Bytes operator[](size_t number) const { return all_[number]; }

 private:
  std::vector<std::vector<std::byte>> all_;
};

// What stands before the calls.
struct SectionHead {
  uint64_t seed = 1;
  bool has_identity = false;  // else it is the tape's
  Identity identity = {};
};
inline void encode_head(Encoder& out, const SectionHead& head) {
  encode(out, head.seed);
  encode(out, head.has_identity);
  if (head.has_identity) encode(out, head.identity);
}
inline SectionHead decode_head(Decoder& in) {
  SectionHead head;
  head.seed = decode<uint64_t>(in);
  head.has_identity = decode<bool>(in);
  if (head.has_identity) head.identity = decode<Identity>(in);
  return head;
}

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_EVENT_H_
