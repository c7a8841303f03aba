// The first thing in which a question is not the one on the tape, in words.
#ifndef SKIDPROOF_PEBS_TAPE_DIFFERENCE_H_
#define SKIDPROOF_PEBS_TAPE_DIFFERENCE_H_

#include <string>

#include "pebs/tape/event.h"
#include "pebs/tape/watched_memory.h"

namespace skidproof::tape {

// "rdmsr(IA32_PMC0)".
std::string in_words(Call call, Bytes question);

// "IA32_PMC0, written before the program, was 0xfff0 on the tape and is 0xff00 now". Of two questions of
// one Call that differ.
std::string difference(Call call, Bytes on_tape, Bytes now);

// "the program's code differs at byte 17". Of two programs that differ.
std::string program_difference(Bytes on_tape, Bytes now);

// "what the test wrote to 0x38 of the debug store at 0x7f00 …". Of what a test changed in memory, by
// encode_question, before two calls.
std::string memory_difference(Bytes on_tape, Bytes now, const WatchedMemory& memory);

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_DIFFERENCE_H_
