// SPDX-License-Identifier: GPL-2.0
/*
 * The IDT that the processor uses while a program runs, and what stands behind
 * its gates. The NMI gate leads to a handler of our own, so that a PMI costs a
 * few hundred instructions and only some ten of them are counted; the exception
 * gates end a program that faults. What is not the program's goes on to the
 * kernel's own entry, with the stack as the processor would have left it there;
 * from ring 3, as if it had come to ours.
 */
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <asm/apic.h>
#include <asm/desc.h>
#include <asm/msr.h>
#include <asm/processor.h>
#include <asm/segment.h>
#include <asm/trapnr.h>

#include "running.h"

#define COUNTERS_FROZEN BIT_ULL(59)

struct traps {
	gate_desc gates[IDT_ENTRIES];
	u8 shift[32];		/* the kernel's own gate has no stack of its own */
} __aligned(PAGE_SIZE);

static DEFINE_PER_CPU(struct running *, now_running);
static struct traps *traps;
static struct desc_ptr our_idt, kernel_idt;
u64 skidproof_kernel_nmi;	/* enter.S jumps there */
static u64 kernel_entry[32];

/* Whose NMIs and exceptions come on this CPU; NULL: nobody's. */
void skidproof_traps_watch(struct running *run)
{
	this_cpu_write(now_running, run);
}

void skidproof_traps_ours(void)
{
	native_load_idt(&our_idt);
}

void skidproof_traps_kernel(void)
{
	native_load_idt(&kernel_idt);
}

static bool in_program(const struct running *run, u64 ip)
{
	u64 begin = run->code->address;

	return ip >= begin && ip - begin < (u64)run->code->count * PAGE_SIZE;
}

static bool between(u64 ip, const char *begin, const char *end)
{
	return ip >= (u64)(uintptr_t)begin && ip < (u64)(uintptr_t)end;
}

/* Whether the counters were meant to count at that instruction. */
static bool counting_at(u64 ip, u64 cs)
{
	return of_user(cs) || ip < __START_KERNEL_map ||
	       between(ip, skidproof_window_begin, skidproof_window_end) ||
	       between(ip, skidproof_landing, skidproof_landing_end) ||
	       between(ip, skidproof_landing_traced, skidproof_landing_traced_end) ||
	       between(ip, skidproof_ud_entry, skidproof_ud_stopped);
}

static u64 field_at(u64 address, u32 bytes)
{
	if (!address)
		return 0;
	return bytes == 4 ? READ_ONCE(*(u32 *)(uintptr_t)address) :
			    READ_ONCE(*(u64 *)(uintptr_t)address);
}

static void rewind_field(u64 index, u64 base, u32 bytes)
{
	if (!index || !base)
		return;
	if (bytes == 4)
		WRITE_ONCE(*(u32 *)(uintptr_t)index, (u32)field_at(base, 4));
	else
		WRITE_ONCE(*(u64 *)(uintptr_t)index, field_at(base, 8));
}

/*
 * Sends the interrupted program to where the driver goes on; the counters stay
 * off. RIP, CS, RFLAGS, RSP and SS stand there as the processor pushed them.
 */
static void leave(const struct running *run, u64 *interrupted)
{
	interrupted[0] = (u64)(uintptr_t)skidproof_left;
	interrupted[1] = __KERNEL_CS;
	interrupted[2] = X86_EFLAGS_FIXED;
	interrupted[3] = run->entry.kernel_sp;
	interrupted[4] = __KERNEL_DS;
}

/* The same, with all that it needs to go on later. */
static void suspend(struct running *run, struct skidproof_frame *frame, u64 ctrl,
		    enum ending ending)
{
	run->frame = *frame;
	run->frame.ctrl = ctrl;
	run->ending = ending;
	leave(run, &frame->rip);
	frame->debugctl_low &= ~(u64)DEBUGCTL_RECORDS;
	frame->ctrl = 0;
}

static void log_pmi(struct running *run, u64 tsc, u64 ip, u64 status, u64 ctrl)
{
	struct skidproof_run *plan = run->plan;
	struct skidproof_pmi *pmi;

	if (plan->pmis >= plan->log_capacity) {
		plan->pmis_dropped++;
		return;
	}
	pmi = &run->log[plan->pmis++];
	pmi->tsc = tsc;
	pmi->ip = ip;
	pmi->global_status = status & ~run->guard_bit;
	pmi->global_ctrl = ctrl & ~run->guard_bit;
	pmi->pebs_index = field_at(plan->pebs_index_address, plan->field_bytes);
	pmi->bts_index = field_at(plan->bts_index_address, plan->field_bytes);
}

enum nmi { OURS, FOREIGN, FOREIGN_IN_PROGRAM };

static enum nmi take_nmi(struct running *run, struct skidproof_frame *frame)
{
	struct skidproof_run *plan = run->plan;
	struct skidproof_file *file = run->file;
	u64 status, ctrl, tsc = rdtsc(), fresh, clear = 0;
	bool guard_only, late;
	u32 lvt, i;

	lvt = skidproof_lvt_read(file);
	status = skidproof_read(plan->status_msr);
	/*
	 * Delivery sets the mask bit. On a processor that forgets to, a new
	 * overflow is a PMI as well.
	 */
	fresh = status & ~run->seen & run->can_interrupt;
	if (!(run->lvt_open && (lvt & APIC_LVT_MASKED)) && !fresh) {
		plan->foreign_nmis++;
		/*
		 * The kernel's entry would take ring 3 for a process, and its
		 * stack for empty; its handler may look at the process' memory.
		 */
		if (run->inside && (of_user(frame->cs) || in_program(run, frame->rip))) {
			suspend(run, frame, frame->ctrl, PASSED_ON);
			skidproof_space_leave(&run->space);
			return FOREIGN_IN_PROGRAM;
		}
		return FOREIGN;
	}

	ctrl = frame->ctrl;
	late = run->finished || !counting_at(frame->rip, frame->cs);
	guard_only = (status & run->guard_bit) && !(fresh & ~run->guard_bit);
	if (!guard_only) {
		log_pmi(run, tsc, frame->rip, status, ctrl);
		if (plan->pmi_flags & SKIDPROOF_PMI_CLEAR_STATUS) {
			u64 keep = 0;

			/* Clearing the bits of armed PEBS counters races with the record. */
			if (!skidproof_rdmsr(PEBS_ENABLE, &keep))
				keep &= plan->keep_status;
			clear = status & ~keep;
		}
		if (plan->pmi_flags & SKIDPROOF_PMI_REWIND_PEBS)
			rewind_field(plan->pebs_index_address, plan->pebs_base_address,
				     plan->field_bytes);
		if (plan->pmi_flags & SKIDPROOF_PMI_REWIND_BTS)
			rewind_field(plan->bts_index_address, plan->bts_base_address,
				     plan->field_bytes);
		if (plan->pmi_flags & SKIDPROOF_PMI_RESTORE_CTRL)
			ctrl = run->ctrl;
	} else {
		/* A freeze that our own interrupt brought about is not the plan's. */
		clear = status & COUNTERS_FROZEN;
		ctrl = run->ctrl;
	}
	clear |= status & run->guard_bit;
	if (clear)
		skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_OVF_CTRL, clear);
	run->seen = status & ~clear;
	if (!guard_only) {
		for (i = 0; i < plan->acknowledge_count; i++)
			skidproof_msr_access(file, &run->acknowledge[i]);
	}

	/* The guard goes on where a freeze stopped the rest. */
	frame->ctrl = late ? 0 : ctrl | run->guard_bit;
	if ((status & run->guard_bit) && !late) {
		skidproof_guard_start(run);
		if (of_user(frame->cs) || in_program(run, frame->rip))
			suspend(run, frame, frame->ctrl, SLICED);
		else
			run->wild++;
	}
	if (of_user(frame->cs))
		skidproof_wrmsr(MSR_KERNEL_GS_BASE, run->kernel_gs);
	if (guard_only || (plan->pmi_flags & SKIDPROOF_PMI_UNMASK))
		skidproof_lvt_write(file, lvt & ~APIC_LVT_MASKED);
	else
		run->lvt_open = false;
	return OURS;
}

/*
 * Called by the stub with the counters off; what they are set to afterwards is
 * in the frame. Not 0: someone else's NMI.
 */
u64 notrace skidproof_nmi(struct skidproof_frame *frame)
{
	struct running *run = this_cpu_read(now_running);
	enum nmi whose;

	if (!run)
		return 1;
	/* By our own IDT a fault in here would take the stack of one that was interrupted. */
	native_load_idt(&kernel_idt);
	whose = take_nmi(run, frame);
	if (whose != FOREIGN_IN_PROGRAM)
		native_load_idt(&our_idt);
	return whose != OURS;
}

/* Counters and branches; DEBUGCTL as it was. */
static u64 stop_recording(void)
{
	u64 debugctl = skidproof_read(MSR_IA32_DEBUGCTLMSR);

	skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, 0);
	if (debugctl & DEBUGCTL_RECORDS)
		skidproof_wrmsr(MSR_IA32_DEBUGCTLMSR, debugctl & ~(u64)DEBUGCTL_RECORDS);
	return debugctl;
}

static void suspend_at_fault(struct running *run, struct skidproof_fault *fault)
{
	u64 ctrl = skidproof_read(MSR_CORE_PERF_GLOBAL_CTRL), debugctl = stop_recording();

	run->frame = (struct skidproof_frame){
		.registers = fault->registers,
		.debugctl_low = (u32)debugctl, .debugctl_high = debugctl >> 32, .ctrl = ctrl,
		.rdx = fault->rdx, .rcx = fault->rcx, .rax = fault->rax,
		.rip = fault->rip, .cs = fault->cs, .rflags = fault->rflags,
		.rsp = fault->rsp, .ss = fault->ss,
	};
	run->ending = PASSED_ON;
	leave(run, &fault->rip);
	skidproof_space_leave(&run->space);
}

/*
 * Called by the stubs. Returns where the stub finds the registers and, behind
 * them, where to go: the frame that it made, or a copy where the kernel's own
 * entry expects it.
 */
struct skidproof_fault * notrace skidproof_fault(struct skidproof_fault *fault)
{
	struct running *run = this_cpu_read(now_running);
	u32 vector = fault->vector;
	bool has_error = BIT(vector) & 0x60227d00;
	u64 *words = (u64 *)fault;
	u64 target = kernel_entry[vector];
	/* Words from the first register to SS, of what the kernel's entry finds. */
	size_t count = sizeof(*fault) / 8;

	if (vector == X86_TRAP_MC) {
		/* Never the program's. The kernel's entry would take ring 3 for a process. */
		if (run && run->inside && of_user(fault->cs))
			suspend_at_fault(run, fault);
	} else if (run && run->inside &&
		   (of_user(fault->cs) || fault->rip < __START_KERNEL_map)) {
		/* The program's own: the kernel's image and modules lie above. */
		stop_recording();
		run->inside = false;
		if (of_user(fault->cs) && vector == X86_TRAP_UD &&
		    fault->rip == run->file->landing->address) {
			run->ending = RETURNED;
		} else {
			run->ending = FAULTED;
			run->plan->fault_ip = fault->rip;
			run->plan->fault_vector = vector;
			run->plan->fault_error = fault->error;
			if (vector == X86_TRAP_PF)
				asm volatile("mov %%cr2, %0" : "=r" (run->plan->fault_address));
		}
		leave(run, &fault->rip);
		target = (u64)(uintptr_t)skidproof_iret;
		has_error = false;
	}
	if (has_error) {
		fault->vector = target;
	} else {
		/* No error code stands between the target and RIP then. */
		memmove(words + 1, words, offsetof(struct skidproof_fault, vector));
		words++;
		count--;
		words[offsetof(struct skidproof_fault, vector) / 8] = target;
	}
	if (target != (u64)(uintptr_t)skidproof_iret && traps->shift[vector]) {
		u64 *top = (u64 *)(uintptr_t)(fault->rsp & ~15ULL) - count;

		memmove(top, words, count * 8);
		words = top;
	}
	return (struct skidproof_fault *)words;
}

/* --- The IDT */

static void set_gate(gate_desc *gate, u64 address, u32 ist)
{
	gate->offset_low = (u16)address;
	gate->offset_middle = (u16)(address >> 16);
	gate->offset_high = (u32)(address >> 32);
	gate->bits.ist = ist;
}

int skidproof_traps_init(void)
{
	/* #DE to #UD but NMI, #NM, #TS to #PF, #MF to #XM, #CP; #DF stays the kernel's. */
	const u32 ours = 0x002f7cfb & ~BIT(X86_TRAP_NMI);
	u32 vector, stack;

	store_idt(&kernel_idt);
	if (kernel_idt.size + 1 < sizeof(traps->gates))
		return -EOPNOTSUPP;
	traps = (struct traps *)__get_free_pages(GFP_KERNEL | __GFP_ZERO,
						 get_order(sizeof(*traps)));
	if (!traps)
		return -ENOMEM;
	memcpy(traps->gates, (void *)kernel_idt.address, sizeof(traps->gates));
	/* A program that ruins its stack pointer must not take the handler with it. */
	stack = traps->gates[X86_TRAP_DF].bits.ist;
	for (vector = 0; vector < 32; vector++) {
		gate_desc *gate = &traps->gates[vector];
		u64 stub = (u64)(uintptr_t)skidproof_fault_entries +
			   vector * SKIDPROOF_FAULT_ENTRY_BYTES;

		kernel_entry[vector] = gate_offset(gate);
		if (!(ours & BIT(vector)) || !gate->bits.p)
			continue;
		traps->shift[vector] = !gate->bits.ist;
		set_gate(gate, stub, gate->bits.ist ? gate->bits.ist : stack);
	}
	set_gate(&traps->gates[X86_TRAP_UD], (u64)(uintptr_t)skidproof_ud_entry,
		 traps->gates[X86_TRAP_UD].bits.ist);
	/* No system call, nor any other way into the kernel. */
	for (vector = 32; vector < IDT_ENTRIES; vector++)
		traps->gates[vector].bits.dpl = 0;
	skidproof_kernel_nmi = kernel_entry[X86_TRAP_NMI];
	set_gate(&traps->gates[X86_TRAP_NMI], (u64)(uintptr_t)skidproof_nmi_entry,
		 traps->gates[X86_TRAP_NMI].bits.ist);
	our_idt.size = kernel_idt.size;
	our_idt.address = (unsigned long)traps->gates;
	return 0;
}

void skidproof_traps_exit(void)
{
	free_pages((unsigned long)traps, get_order(sizeof(*traps)));
}
