// The hooks of Bochs that the virtual lab uses, all of its others left empty. Bochs includes this file in each of
// its sources, so what runs for every instruction is an inline test and nothing more.
#ifndef SKIDPROOF_PEBS_ENGINES_BOCHS_INSTRUMENT_H_
#define SKIDPROOF_PEBS_ENGINES_BOCHS_INSTRUMENT_H_

class bxInstruction_c;

// At [n]: CPU n's instructions matter to its PMU, or to who counts the driver's.
extern bool skidproof_lab_watching[];
// Somebody counts the driver's instructions.
extern bool skidproof_lab_metering;

void skidproof_lab_initialize(unsigned cpu);
void skidproof_lab_reset(unsigned cpu, unsigned type);
void skidproof_lab_decoded(unsigned cpu, bxInstruction_c* i);
void skidproof_lab_code_changed(unsigned cpu);
void skidproof_lab_before(unsigned cpu);
void skidproof_lab_after(unsigned cpu, bxInstruction_c* i);
void skidproof_lab_repetition(unsigned cpu);
void skidproof_lab_halted(unsigned cpu);
void skidproof_lab_branch_taken(unsigned cpu);
void skidproof_lab_access(unsigned cpu, bx_address address, unsigned bytes, unsigned how);
void skidproof_lab_wrmsr(unsigned cpu, unsigned msr, Bit64u value);
void skidproof_lab_hardware_interrupt(unsigned cpu, unsigned vector);
void skidproof_lab_exception(unsigned cpu, unsigned vector);
void skidproof_lab_far_branch(unsigned cpu, unsigned what);
void skidproof_lab_may_write_lvt(unsigned cpu, bx_phy_address address);
void skidproof_lab_output(unsigned port, unsigned bytes, unsigned value);

#define BX_INSTR_INIT_ENV()
#define BX_INSTR_EXIT_ENV()
#define BX_INSTR_INITIALIZE(cpu_id) skidproof_lab_initialize(cpu_id)
#define BX_INSTR_EXIT(cpu_id)
#define BX_INSTR_RESET(cpu_id, type) skidproof_lab_reset(cpu_id, type)
#define BX_INSTR_HLT(cpu_id)                                          \
  do {                                                                \
    if (skidproof_lab_watching[cpu_id]) skidproof_lab_halted(cpu_id); \
  } while (0)
#define BX_INSTR_MWAIT(cpu_id, addr, len, flags) BX_INSTR_HLT(cpu_id)
#define BX_INSTR_DEBUG_PROMPT()
#define BX_INSTR_DEBUG_CMD(cmd)

#define BX_INSTR_CNEAR_BRANCH_TAKEN(cpu_id, branch_eip, new_eip)            \
  do {                                                                      \
    if (skidproof_lab_watching[cpu_id]) skidproof_lab_branch_taken(cpu_id); \
  } while (0)
#define BX_INSTR_CNEAR_BRANCH_NOT_TAKEN(cpu_id, branch_eip)
#define BX_INSTR_UCNEAR_BRANCH(cpu_id, what, branch_eip, new_eip)
#define BX_INSTR_FAR_BRANCH(cpu_id, what, prev_cs, prev_eip, new_cs, new_eip) \
  do {                                                                        \
    if (skidproof_lab_metering) skidproof_lab_far_branch(cpu_id, what);       \
  } while (0)

// Bytes were decoded anew: they may be other ones than before.
#define BX_INSTR_OPCODE(cpu_id, i, opcode, len, is32, is64) skidproof_lab_decoded(cpu_id, i)

#define BX_INSTR_EXCEPTION(cpu_id, vector, error_code)                   \
  do {                                                                   \
    if (skidproof_lab_metering) skidproof_lab_exception(cpu_id, vector); \
  } while (0)
#define BX_INSTR_INTERRUPT(cpu_id, vector)
#define BX_INSTR_HWINTERRUPT(cpu_id, vector, cs, eip)                             \
  do {                                                                            \
    if (skidproof_lab_metering) skidproof_lab_hardware_interrupt(cpu_id, vector); \
  } while (0)

// Its own check of the address is no access that Bochs shows.
#define BX_INSTR_CLFLUSH(cpu_id, laddr, paddr)                                           \
  do {                                                                                   \
    if (skidproof_lab_watching[cpu_id]) skidproof_lab_access(cpu_id, laddr, 1, BX_READ); \
  } while (0)
#define BX_INSTR_CACHE_CNTRL(cpu_id, what)
#define BX_INSTR_TLB_CNTRL(cpu_id, what, new_cr3) skidproof_lab_code_changed(cpu_id)
#define BX_INSTR_PREFETCH_HINT(cpu_id, what, seg, offset)

#define BX_INSTR_BEFORE_EXECUTION(cpu_id, i)                          \
  do {                                                                \
    if (skidproof_lab_watching[cpu_id]) skidproof_lab_before(cpu_id); \
  } while (0)
#define BX_INSTR_AFTER_EXECUTION(cpu_id, i)                             \
  do {                                                                  \
    if (skidproof_lab_watching[cpu_id]) skidproof_lab_after(cpu_id, i); \
  } while (0)
#define BX_INSTR_REPEAT_ITERATION(cpu_id, i)                              \
  do {                                                                    \
    if (skidproof_lab_watching[cpu_id]) skidproof_lab_repetition(cpu_id); \
  } while (0)

// A write has not yet taken place.
#define BX_INSTR_LIN_ACCESS(cpu_id, lin, phy, len, memtype, rw)                     \
  do {                                                                              \
    if (((phy)&0xFFF) == 0x340) skidproof_lab_may_write_lvt(cpu_id, (phy));         \
    if (skidproof_lab_watching[cpu_id]) skidproof_lab_access(cpu_id, lin, len, rw); \
  } while (0)
#define BX_INSTR_PHY_ACCESS(cpu_id, phy, len, memtype, rw)

#define BX_INSTR_INP(addr, len)
#define BX_INSTR_INP2(addr, len, val)
#define BX_INSTR_OUTP(addr, len, val) skidproof_lab_output(addr, len, val)

#define BX_INSTR_WRMSR(cpu_id, addr, value) skidproof_lab_wrmsr(cpu_id, addr, value)
#define BX_INSTR_VMEXIT(cpu_id, reason, qualification)

#endif  // SKIDPROOF_PEBS_ENGINES_BOCHS_INSTRUMENT_H_
