/* SPDX-License-Identifier: GPL-2.0 */
/* A run as its parts see it: what it was given, what was found, how it stands. */
#ifndef SKIDPROOF_PEBS_DIRECT_DRIVER_RUNNING_H_
#define SKIDPROOF_PEBS_DIRECT_DRIVER_RUNNING_H_

#include <linux/percpu.h>
#include <linux/sched.h>
#include <asm/desc_defs.h>

#include "skidproof.h"

#define NO_GUARD ~0U

/*
 * SLICED: interrupts are to be let in. PASSED_ON: someone else's went to the
 * kernel. AGAIN: the same before the program had begun or gone on. REFUSED: what
 * starts the counters raised #GP. BROKEN: a machine check.
 */
enum ending { RETURNED, FAULTED, SLICED, PASSED_ON, AGAIN, REFUSED, BROKEN };

/* Of user space, which a program can change. */
struct user_state {
	u64 fs_base, gs_base;
	u32 pkru;
	u16 ds, es, fs, gs;
};

/* What system calls go by. */
struct system_calls {
	u64 efer, sysenter, cet;
};

struct running {
	struct skidproof_file *file;
	struct skidproof_run *plan;
	struct skidproof_entry entry;
	struct skidproof_frame frame;	/* of an interrupted program */
	struct skidproof_block *code;
	struct skidproof_msr *enable, *disable, *read, *acknowledge;
	struct skidproof_pmi *log;
	struct task_struct *task;

	enum ending ending;
	unsigned int turns;	/* that are over */
	bool begun;		/* the program has */
	bool unfinished;	/* another turn is to come */
	bool inside;		/* from the way in to the first stub that ends the run: enter.S clears it */
	bool lvt_open;		/* unmasked when the program began */
	u32 refused;		/* MSR whose write started nothing */
	u64 debugctl_after;	/* the program */
	u64 ctrl;		/* GLOBAL_CTRL while the program runs, the guard included */
	u64 left_ctrl;		/* the same without it */
	u64 seen;		/* status bits that stay although a PMI told of them */
	u64 can_interrupt;	/* status bits that come with a PMI */
	u32 guard;		/* as in struct skidproof_run */
	u64 guard_bit;
	u64 guard_limit;	/* what it counts in the limit */
	u64 fixed_ctrl, guard_counter;	/* as found */
	u64 begin, deadline;	/* TSC */
	bool disarmed;		/* PEBS is off while the kernel handles an NMI … */
	u64 armed[BITS_PER_LONG];	/* … and goes back to this */
	u64 sampling;		/* counters with architectural PEBS, as the plan has them */
	u64 smis, machine_checks;	/* before */
	int error;
	u64 breakpoints[5];	/* DB0 to DB3, DB7, as found */
	struct skidproof_space space;	/* as found */
	struct user_state found, left;	/* the process', the program's */
	struct system_calls system_calls;	/* as found */
	struct vectors_image *vectors;	/* the program's, between turns */
	u64 kernel_gs;
	bool user_rdpmc;	/* CR4.PCE at ring 3 */
};

/* Whether a code segment is ring 3's. */
static inline bool of_user(u64 cs)
{
	return cs & 3;
}

/* traps.c */
void skidproof_traps_watch(struct running *run);
/* For enter.S. */
DECLARE_PER_CPU(struct running *, skidproof_now);
extern struct desc_ptr skidproof_idt, skidproof_kernel_idt;
extern u64 skidproof_kernel_nmi, skidproof_kernel_mc;

/* guard.c */
void skidproof_guard_try(struct skidproof_file *file);
int skidproof_guard_begin(struct running *run);
void skidproof_guard_start(const struct running *run);
void skidproof_guard_end(struct running *run);

#endif /* SKIDPROOF_PEBS_DIRECT_DRIVER_RUNNING_H_ */
