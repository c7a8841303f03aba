// SPDX-License-Identifier: GPL-2.0
/*
 * The IDT that the processor uses while a program runs, and what stands behind
 * its gates. The NMI gate leads to a handler of our own, so that a PMI costs a
 * few hundred instructions and only some ten of them are counted; the exception
 * gates end the run. For what is not the program's, an NMI of somebody else's or
 * a machine check, there is one exit: counters off, the program's registers
 * kept, the kernel's IDT and page tables, and its own entry, as if what it
 * interrupted were the call into the program. The run goes on from there.
 */
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/printk.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <asm/apic.h>
#include <asm/cpufeature.h>
#include <asm/desc.h>
#include <asm/msr.h>
#include <asm/processor.h>
#include <asm/segment.h>
#include <asm/trapnr.h>

#include "running.h"

#ifndef X86_TRAP_CP
#define X86_TRAP_CP 21
#endif

/* Counters and the last branch records, frozen by an interrupt. */
#define FROZEN (BIT_ULL(58) | BIT_ULL(59))

/* Whose NMIs and exceptions come on this CPU; NULL: nobody's. */
DEFINE_PER_CPU(struct running *, skidproof_now);

/*
 * Of two IDTs. While the handler of NMIs runs, an access of its own that raises
 * #GP stays on its stack: the stack that exceptions of programs have may be in
 * use by one that the NMI interrupted.
 */
static gate_desc *gates;
static struct desc_ptr handler_idt;
struct desc_ptr skidproof_idt, skidproof_kernel_idt;	/* enter.S loads them … */
u64 skidproof_kernel_nmi, skidproof_kernel_mc;		/* … and jumps there */

void skidproof_traps_watch(struct running *run)
{
	this_cpu_write(skidproof_now, run);
}

static bool between(u64 ip, const char *begin, const char *end)
{
	return ip >= (u64)(uintptr_t)begin && ip < (u64)(uintptr_t)end;
}

/*
 * Where our IDT is in use: in a program or the instructions around it that are
 * counted with it; on the way in, which can begin again; on the way out, where
 * the result stands and the way can begin again; in a stub that ends the run.
 */
enum place { PROGRAM, WAY_IN, WAY_OUT, STUB };

static enum place place_of(const struct running *run, u64 ip, u64 cs)
{
	if (!run->inside)
		return STUB;
	if (of_user(cs) || between(ip, skidproof_ud_entry, skidproof_ud_stopped))
		return PROGRAM;
	if (between(ip, skidproof_window_begin, skidproof_window_end))
		return WAY_IN;
	if (between(ip, skidproof_landing_end, skidproof_landing_traced) ||
	    between(ip, skidproof_landing_traced_end, skidproof_left_end))
		return WAY_OUT;
	return between(ip, skidproof_nmi_entry, skidproof_stubs_end) ? STUB : PROGRAM;
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
	frame->gs_base = run->kernel_gs;
}

/* The kernel's entry comes next, and everything is as it expects it. */
static void to_kernel(const struct running *run)
{
	skidproof_space_leave(&run->space);
	native_load_idt(&skidproof_kernel_idt);
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
	pmi->pebs_index = plan->pebs_buffer ?
		plan->pebs_buffer + (skidproof_read(PEBS_INDEX) & PEBS_INDEX_WR) :
		field_at(plan->pebs_index_address, plan->field_bytes);
	pmi->bts_index = field_at(plan->bts_index_address, plan->field_bytes);
}

/* Whether an NMI is a PMI of the run's, by the LVT entry and the status as it comes. */
static bool is_pmi(const struct running *run, u32 lvt, u64 status)
{
	/*
	 * Delivery sets the mask bit. On a processor that forgets to, a new
	 * overflow is a PMI as well.
	 */
	if (lvt & APIC_LVT_MASKED)
		return run->lvt_open;
	return status & ~run->seen & run->can_interrupt;
}

/*
 * What the plan wants of a PMI; `ctrl` is what the counters go on with. Whether
 * it came of the guard.
 */
static bool take_pmi(struct running *run, u64 tsc, u64 ip, u32 lvt, u64 status, u64 *ctrl)
{
	struct skidproof_run *plan = run->plan;
	u64 fresh = status & ~run->seen & run->can_interrupt, clear = 0;
	bool guard = status & run->guard_bit, guard_only = guard && !(fresh & ~run->guard_bit);
	u32 i;

	if (!guard_only) {
		log_pmi(run, tsc, ip, status, *ctrl);
		if (plan->pmi_flags & SKIDPROOF_PMI_CLEAR_STATUS) {
			u64 keep = run->sampling;

			/* Clearing the bits of armed PEBS counters races with the record. */
			if (!run->file->pebs_counters)
				keep = skidproof_read(PEBS_ENABLE);
			clear = status & ~(keep & plan->keep_status);
		}
		if (plan->pmi_flags & SKIDPROOF_PMI_REWIND_PEBS)
			rewind_field(plan->pebs_index_address, plan->pebs_base_address,
				     plan->field_bytes);
		if (plan->pmi_flags & SKIDPROOF_PMI_REWIND_BTS)
			rewind_field(plan->bts_index_address, plan->bts_base_address,
				     plan->field_bytes);
		if (plan->pmi_flags & SKIDPROOF_PMI_RESTORE_CTRL)
			*ctrl = run->ctrl;
	} else {
		/* A freeze that our own interrupt brought about is not the plan's. */
		clear = status & FROZEN;
		*ctrl = run->ctrl;
	}
	clear |= status & run->guard_bit;
	if (clear)
		skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_OVF_CTRL, clear);
	run->seen = status & ~clear;
	for (i = 0; i < plan->acknowledge_count && !guard_only; i++)
		skidproof_msr_execute(run->file, &run->acknowledge[i]);
	if (guard)
		skidproof_guard_start(run);
	if (guard_only || (plan->pmi_flags & SKIDPROOF_PMI_UNMASK))
		skidproof_lvt_write(run->file, lvt & ~APIC_LVT_MASKED);
	else
		run->lvt_open = false;
	return guard;
}

/*
 * Somebody else's NMI, or another CPU's call, which the handler in cpu.c takes;
 * the frame is then what the kernel's entry finds. Of a panic elsewhere it does
 * not come back, and the next kernel is to find nothing armed.
 */
static void pass_on(struct running *run, struct skidproof_frame *frame, enum place place)
{
	if (oops_in_progress) {
		skidproof_disarm(run->file, run->armed);
		run->disarmed = true;
	}
	if (!READ_ONCE(run->file->called))
		run->plan->foreign_nmis++;
	switch (place) {
	case PROGRAM:
		suspend(run, frame, frame->ctrl, PASSED_ON);
		break;
	case WAY_IN:
		run->ending = AGAIN;
		leave(run, &frame->rip);
		break;
	case WAY_OUT:
		if (!between(frame->rip, skidproof_left, skidproof_left_end))
			frame->rax = frame->registers.r8;
		leave(run, &frame->rip);
		break;
	case STUB:
		break;
	}
	to_kernel(run);
}

/*
 * Called by the stub with the counters off; what they are set to afterwards is
 * in the frame. Not 0: someone else's NMI.
 */
int notrace skidproof_nmi(struct skidproof_frame *frame)
{
	struct running *run = this_cpu_read(skidproof_now);
	enum place place = place_of(run, frame->rip, frame->cs);
	bool counting = place == PROGRAM || place == WAY_IN, guard;
	u64 tsc = rdtsc(), ctrl = frame->ctrl, status;
	u32 lvt;

	native_load_idt(&handler_idt);
	status = skidproof_read(run->plan->status_msr);
	lvt = skidproof_lvt_read(run->file);
	if (!is_pmi(run, lvt, status)) {
		pass_on(run, frame, place);
		return 1;
	}
	guard = take_pmi(run, tsc, frame->rip, lvt, status, &ctrl);
	/* The guard goes on where a freeze stopped the rest. */
	frame->ctrl = counting ? ctrl | run->guard_bit : 0;
	if (place == PROGRAM && (guard || tsc > run->file->slice_end))
		suspend(run, frame, frame->ctrl, SLICED);
	native_load_idt(&skidproof_idt);
	return 0;
}

/* The same behind the program, by the kernel's IDT: whether it was the run's. */
bool notrace skidproof_late_nmi(u64 ip)
{
	struct running *run = this_cpu_read(skidproof_now);
	u64 status, ctrl = 0;
	u32 lvt;

	if (!run)
		return false;
	status = skidproof_read(run->plan->status_msr);
	lvt = skidproof_lvt_read(run->file);
	if (!is_pmi(run, lvt, status))
		return false;
	take_pmi(run, rdtsc(), ip, lvt, status, &ctrl);
	return true;
}

/*
 * Called by the stubs with counters and branches off. Not 0: the kernel's entry
 * for machine checks comes next.
 */
int notrace skidproof_fault(struct skidproof_fault *fault)
{
	struct running *run = this_cpu_read(skidproof_now);
	struct skidproof_run *plan = run->plan;
	bool user = of_user(fault->cs);

	if (fault->vector == X86_TRAP_MC) {
		run->ending = BROKEN;
	} else if (user && fault->vector == X86_TRAP_UD &&
		   fault->rip == run->file->landing->address) {
		run->ending = RETURNED;
	} else if (!user && fault->vector == X86_TRAP_GP && fault->rcx &&
		   between(fault->rip, skidproof_window_begin, skidproof_window_end)) {
		/* One of the writes that start the counters and what records branches. */
		run->ending = REFUSED;
		run->refused = fault->rcx;
	} else {
		run->ending = FAULTED;
		plan->fault_ip = fault->rip;
		plan->fault_vector = fault->vector;
		plan->fault_error = fault->error;
		if (fault->vector == X86_TRAP_PF)
			asm volatile("mov %%cr2, %0" : "=r" (plan->fault_address));
	}
	leave(run, &fault->rip);
	if (run->ending != BROKEN)
		return 0;
	to_kernel(run);
	return 1;
}

/* A probe in what runs by our IDT would end the run. */
NOKPROBE_SYMBOL(between);
NOKPROBE_SYMBOL(place_of);
NOKPROBE_SYMBOL(field_at);
NOKPROBE_SYMBOL(rewind_field);
NOKPROBE_SYMBOL(leave);
NOKPROBE_SYMBOL(suspend);
NOKPROBE_SYMBOL(to_kernel);
NOKPROBE_SYMBOL(log_pmi);
NOKPROBE_SYMBOL(is_pmi);
NOKPROBE_SYMBOL(take_pmi);
NOKPROBE_SYMBOL(pass_on);
NOKPROBE_SYMBOL(skidproof_nmi);
NOKPROBE_SYMBOL(skidproof_late_nmi);
NOKPROBE_SYMBOL(skidproof_fault);
NOKPROBE_SYMBOL(skidproof_guard_start);
NOKPROBE_SYMBOL(skidproof_space_leave);
NOKPROBE_SYMBOL(skidproof_lvt_read);
NOKPROBE_SYMBOL(skidproof_lvt_write);
NOKPROBE_SYMBOL(skidproof_msr_execute);
NOKPROBE_SYMBOL(skidproof_harmless);
NOKPROBE_SYMBOL(skidproof_disarm);
NOKPROBE_SYMBOL(skidproof_stores_inside);
NOKPROBE_SYMBOL(skidproof_block_at);

/* --- The IDT */

#define IDT_BYTES (IDT_ENTRIES * sizeof(*gates))

static void set_gate(gate_desc *gate, u64 address, u32 ist)
{
	gate->offset_low = (u16)address;
	gate->offset_middle = (u16)(address >> 16);
	gate->offset_high = (u32)(address >> 32);
	gate->bits.ist = ist;
}

int skidproof_traps_init(void)
{
	/* All that a program can raise; #DF stays the kernel's. */
	const u32 ours = BIT(X86_TRAP_DE) | BIT(X86_TRAP_DB) | BIT(X86_TRAP_BP) | BIT(X86_TRAP_OF) |
			 BIT(X86_TRAP_BR) | BIT(X86_TRAP_UD) | BIT(X86_TRAP_NM) | BIT(X86_TRAP_TS) |
			 BIT(X86_TRAP_NP) | BIT(X86_TRAP_SS) | BIT(X86_TRAP_GP) | BIT(X86_TRAP_PF) |
			 BIT(X86_TRAP_MF) | BIT(X86_TRAP_AC) | BIT(X86_TRAP_MC) | BIT(X86_TRAP_XF) |
			 BIT(X86_TRAP_CP);
	u32 vector, stack;
	bool fred = false;

#ifdef X86_FEATURE_FRED
	fred = boot_cpu_has(X86_FEATURE_FRED);
#endif
	if (boot_cpu_has(X86_FEATURE_XENPV) || fred) {
		pr_err("skidproof: %s, so there can be no IDT of a driver's: boot natively, with fred=off\n",
		       fred ? "the kernel uses FRED" : "this is a guest of Xen PV");
		return -EOPNOTSUPP;
	}
	store_idt(&skidproof_kernel_idt);
	if (skidproof_kernel_idt.size + 1 < IDT_BYTES)
		return -EOPNOTSUPP;
	gates = (gate_desc *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, get_order(2 * IDT_BYTES));
	if (!gates)
		return -ENOMEM;
	memcpy(gates, (void *)skidproof_kernel_idt.address, IDT_BYTES);
	skidproof_kernel_nmi = gate_offset(&gates[X86_TRAP_NMI]);
	skidproof_kernel_mc = gate_offset(&gates[X86_TRAP_MC]);
	/* A program that ruins its stack pointer must not take the handler with it. */
	stack = gates[X86_TRAP_DF].bits.ist;
	for (vector = 0; vector < 32; vector++) {
		gate_desc *gate = &gates[vector];
		u64 stub = (u64)(uintptr_t)skidproof_fault_entries +
			   vector * SKIDPROOF_FAULT_ENTRY_BYTES;

		if (ours & BIT(vector) && gate->bits.p)
			set_gate(gate, stub, gate->bits.ist ? gate->bits.ist : stack);
	}
	set_gate(&gates[X86_TRAP_UD], (u64)(uintptr_t)skidproof_ud_entry,
		 gates[X86_TRAP_UD].bits.ist);
	/* No system call, nor any other way into the kernel. */
	for (vector = 32; vector < IDT_ENTRIES; vector++)
		gates[vector].bits.dpl = 0;
	set_gate(&gates[X86_TRAP_NMI], (u64)(uintptr_t)skidproof_nmi_entry,
		 gates[X86_TRAP_NMI].bits.ist);
	memcpy(gates + IDT_ENTRIES, gates, IDT_BYTES);
	gates[IDT_ENTRIES + X86_TRAP_GP].bits.ist = 0;
	skidproof_idt.size = handler_idt.size = IDT_BYTES - 1;
	skidproof_idt.address = (unsigned long)gates;
	handler_idt.address = (unsigned long)(gates + IDT_ENTRIES);
	return 0;
}

void skidproof_traps_exit(void)
{
	free_pages((unsigned long)gates, get_order(2 * IDT_BYTES));
}
