// Errors as values: what happened, and what the reader can do about it.
#ifndef SKIDPROOF_BASE_EXPECTED_H_
#define SKIDPROOF_BASE_EXPECTED_H_

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace skidproof {

// A closed list: callers branch on the code, people read the message.
enum class ErrorCode {
  kInvalidArgument,    // the caller asked for something that has no meaning
  kNotAvailable,       // this machine has no such thing (an MSR on the native machine)
  kGeneralProtection,  // the processor answered #GP
  kPermission,         // the operating system refused
  kUnsupported,        // the engine, or this build, cannot do it
  kNoMemory,
  kIo,
  kExecution,  // a program left its code, its data or the known instructions
  kTimeout,
  kInternal,
  kOffTape,      // a replay was asked for something else than its tape holds
  kNotRecorded,  // a tape holds nothing of what was asked for
  // New ones here: tapes hold their numbers.
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // what happened, on which CPU, MSR or address
  std::string advice;   // what to do; may be empty

  std::string text() const { return advice.empty() ? message : message + "\n  " + advice; }
};

template <typename T>
using Expected = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string advice = {}) {
  return tl::make_unexpected(Error{code, std::move(message), std::move(advice)});
}

}  // namespace skidproof

// Evaluates to the value of an Expected, or returns its error from the enclosing function.
#define SKIDPROOF_TRY(expression)                                                           \
  __extension__({                                                                           \
    auto skidproof_result = (expression);                                                   \
    if (!skidproof_result) return tl::make_unexpected(std::move(skidproof_result).error()); \
    std::move(skidproof_result).value();                                                    \
  })

// The same for Expected<void>.
#define SKIDPROOF_CHECK(expression)                                                         \
  do {                                                                                      \
    auto skidproof_result = (expression);                                                   \
    if (!skidproof_result) return tl::make_unexpected(std::move(skidproof_result).error()); \
  } while (false)

#endif  // SKIDPROOF_BASE_EXPECTED_H_
