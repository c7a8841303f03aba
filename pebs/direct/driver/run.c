// SPDX-License-Identifier: GPL-2.0
/*
 * A run: registers in, the program at ring 0 or ring 3, registers out, and every
 * PMI that came meanwhile; traps.c has what comes between.
 *
 * At ring 3 a program can change what belongs to user space, and that goes back
 * afterwards; it can leave the ring only by way of the IDT of traps.c, since the
 * system calls are off. It returns by an instruction that faults.
 */
#include <linux/irqflags.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/perf_event.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <asm/apic.h>
#include <asm/fpu/api.h>
#include <asm/mce.h>
#include <asm/msr.h>
#include <asm/processor.h>
#include <asm/segment.h>
#include <asm/trapnr.h>
#include <asm/tsc.h>

#include "running.h"

#define U_CET 0x6a0
#define CR4_CET BIT_ULL(23)
#define BUFFER_OVERFLOW BIT_ULL(62)
#define MAX_DEADLINE_MS 60000
/* The scheduler is served at least as often. */
#define TURN_MS 100U
/* How long a PMI may be on its way after the program, in TSC ticks and in looks. */
#define LATE_TICKS 20000
#define LATE_LOOKS 64

/* In a code block: UD2 where programs at ring 3 return to, and one that reads a counter. */
#define USER_RDPMC 16
static const u8 landing_code[] = { 0x0f, 0x0b };
/* MOV ECX, EDI; RDPMC; SHL RDX, 32; OR RAX, RDX; RET */
static const u8 rdpmc_code[] = { 0x89, 0xf9, 0x0f, 0x33, 0x48, 0xc1, 0xe2, 0x20,
				 0x48, 0x09, 0xd0, 0xc3 };
#define RDPMC_MS 1000

static u64 machine_checks(const struct skidproof_file *file)
{
	u64 sum = 0, status;
	u32 bank;

	for (bank = 0; bank < file->mc_banks; bank++) {
		/* Valid errors, and how often a corrected one came. */
		if (!skidproof_rdmsr(MSR_IA32_MCx_STATUS(bank), &status) &&
		    (status & MCI_STATUS_VAL))
			sum += 1 + (status >> 38 & 0x7fff);
	}
	return sum;
}

static u64 smi_count(const struct skidproof_file *file)
{
	return file->smi_count ? skidproof_read(MSR_SMI_COUNT) & 0xffffffff : 0;
}

/* The status bits with which an interrupt comes, as the registers stand now. */
static u64 interrupting(const struct skidproof_file *file)
{
	u64 fixed = skidproof_read(MSR_CORE_PERF_FIXED_CTR_CTRL), bits = BUFFER_OVERFLOW;
	u32 i;

	if (file->pebs_counters)
		bits |= PEBS_THRESHOLD;
	/* Those that have no register of before version 6. */
	for (i = file->gp_counters; i < FIXED_POSITION && file->bank; i++) {
		if (file->counters & BIT_ULL(i) &&
		    skidproof_read(skidproof_bank_msr(i, BANK_CFG_A)) & ARCH_PERFMON_EVENTSEL_INT)
			bits |= BIT_ULL(i);
	}

	for (i = 0; i < file->gp_counters; i++) {
		if (skidproof_read(MSR_ARCH_PERFMON_EVENTSEL0 + i) & ARCH_PERFMON_EVENTSEL_INT)
			bits |= BIT_ULL(i);
	}
	for (i = 0; i < file->fixed_counters; i++) {
		if (fixed >> (4 * i) & 8)
			bits |= BIT_ULL(32 + i);
	}
	return bits;
}

static void fault_of(struct running *run, const struct skidproof_msr *access)
{
	if (access->fault && run->plan->outcome == SKIDPROOF_RETURNED) {
		run->plan->outcome = SKIDPROOF_MSR_FAULT;
		run->plan->fault_msr = access->msr;
		run->plan->fault_value = access->value;
	}
}

/* Goes on behind a fault: what stops the counters must not be left out. */
static int write_all(struct running *run, struct skidproof_msr *list, u32 count)
{
	int first = 0;
	u32 i;

	for (i = 0; i < count; i++) {
		int error = skidproof_msr_access(run->file, &list[i]);

		if (!first)
			first = error;
		if (!error)
			fault_of(run, &list[i]);
	}
	return first;
}

/* --- x87, vector, mask and tile registers */

/* XCR0: x87, SSE, AVX, the three of AVX-512, the two of AMX. */
#define VECTORS (BIT_ULL(0) | BIT_ULL(1) | BIT_ULL(2) | BIT_ULL(5) | BIT_ULL(6) | BIT_ULL(7) | \
		 BIT_ULL(17) | BIT_ULL(18))
#define FXSAVE_BYTES 512

/* Where FXSAVE and XSAVE have the control words, and what they are when a program begins. */
struct vectors_image {
	u16 fcw;
	u16 others[11];
	u32 mxcsr;
};

static size_t vectors_bytes(void)
{
	u32 eax, ebx, ecx, edx;

	if (!boot_cpu_has(X86_FEATURE_OSXSAVE))
		return FXSAVE_BYTES;
	cpuid_count(0xd, 0, &eax, &ebx, &ecx, &edx);
	return ebx;
}

static struct vectors_image *vectors_new(void)
{
	struct vectors_image *image = alloc_pages_exact(vectors_bytes(),
							GFP_KERNEL_ACCOUNT | __GFP_ZERO);

	if (image) {
		image->fcw = 0x37f;
		image->mxcsr = 0x1f80;
	}
	return image;
}

static void vectors_free(struct vectors_image *image)
{
	if (image)
		free_pages_exact(image, vectors_bytes());
}

static void vectors_load(const struct vectors_image *image)
{
	if (boot_cpu_has(X86_FEATURE_OSXSAVE))
		asm volatile("xrstor64 (%0)" : : "r" (image), "a" ((u32)VECTORS), "d" (0)
			     : "memory");
	else
		asm volatile("fxrstor64 (%0)" : : "r" (image) : "memory");
}

static void vectors_save(struct vectors_image *image)
{
	if (boot_cpu_has(X86_FEATURE_OSXSAVE))
		asm volatile("xsave64 (%0)" : : "r" (image), "a" ((u32)VECTORS), "d" (0)
			     : "memory");
	else
		asm volatile("fxsave64 (%0)" : : "r" (image) : "memory");
}

/* What the program finds: its stack, with where it begins and where it returns to, and its arguments. */
static void prepare_entry(struct running *run)
{
	const struct skidproof_block *stack = run->file->stack;
	u64 *top = page_address(stack->pages[stack->count - 1]) + PAGE_SIZE;
	u64 address = stack->address + stack->count * PAGE_SIZE;

	if (run->plan->ring) {
		run->entry.user = 1;
		run->entry.rip = run->plan->entry;
		run->entry.stack = address - sizeof(*top);
		top[-1] = run->file->landing->address;
	} else {
		run->entry.stack = address - 2 * sizeof(*top);
		top[-1] = (u64)(uintptr_t)(run->entry.traced ? skidproof_landing_traced :
								skidproof_landing);
		top[-2] = run->plan->entry;
	}
	run->entry.iterations = run->plan->iterations;
	run->entry.data = run->plan->data;
	run->entry.frame = &run->frame;
}

/* An interrupt that is still on its way arrives here. */
static void wait_for_late(const struct running *run)
{
	u64 until = rdtsc() + LATE_TICKS;
	int looks = 0;

	if (!run->lvt_open)
		return;
	while (READ_ONCE(run->lvt_open)) {
		bool pending = skidproof_read(MSR_CORE_PERF_GLOBAL_STATUS) & run->can_interrupt &
			       ~run->seen;

		cpu_relax();
		if (++looks >= LATE_LOOKS && (!pending || rdtsc() > until))
			break;
	}
}

/*
 * The NMI stub keeps registers in DB0 to DB3, which therefore must not be
 * breakpoints meanwhile.
 */
static void take_breakpoints(struct running *run)
{
	asm volatile("mov %%db7, %0" : "=r" (run->breakpoints[4]));
	asm volatile("mov %0, %%db7" : : "r" (0x400UL));
	asm volatile("mov %%db0, %0" : "=r" (run->breakpoints[0]));
	asm volatile("mov %%db1, %0" : "=r" (run->breakpoints[1]));
	asm volatile("mov %%db2, %0" : "=r" (run->breakpoints[2]));
	asm volatile("mov %%db3, %0" : "=r" (run->breakpoints[3]));
}

static void give_breakpoints(const struct running *run)
{
	/* The kernel would take a single step that a program left there for its own. */
	asm volatile("mov %0, %%db6" : : "r" (0xffff0ff0UL));
	asm volatile("mov %0, %%db0" : : "r" (run->breakpoints[0]));
	asm volatile("mov %0, %%db1" : : "r" (run->breakpoints[1]));
	asm volatile("mov %0, %%db2" : : "r" (run->breakpoints[2]));
	asm volatile("mov %0, %%db3" : : "r" (run->breakpoints[3]));
	asm volatile("mov %0, %%db7" : : "r" (run->breakpoints[4]));
}

/* Indirect branch tracking asks for an ENDBR where programs have none. */
static u64 suspend_ibt(void)
{
#ifdef MSR_IA32_S_CET
	u64 value;

	if (boot_cpu_has(X86_FEATURE_IBT) && !skidproof_rdmsr(MSR_IA32_S_CET, &value) && value) {
		skidproof_wrmsr(MSR_IA32_S_CET, 0);
		return value;
	}
#endif
	return 0;
}

static void resume_ibt(u64 value)
{
#ifdef MSR_IA32_S_CET
	if (value)
		skidproof_wrmsr(MSR_IA32_S_CET, value);
#endif
}

/* --- Ring 3 */

/* No system calls and no shadow stack of the process'. */
static void take_system_calls(struct running *run)
{
	struct system_calls *calls = &run->system_calls;

	if (!run->plan->ring)
		return;
	calls->efer = skidproof_read(MSR_EFER);
	calls->sysenter = skidproof_read(MSR_IA32_SYSENTER_CS);
	skidproof_wrmsr(MSR_EFER, calls->efer & ~(u64)EFER_SCE);
	skidproof_wrmsr(MSR_IA32_SYSENTER_CS, 0);
	if (native_read_cr4() & CR4_CET) {
		calls->cet = skidproof_read(U_CET);
		skidproof_wrmsr(U_CET, 0);
	}
}

static void give_system_calls(const struct running *run)
{
	const struct system_calls *calls = &run->system_calls;

	if (!run->plan->ring)
		return;
	if (native_read_cr4() & CR4_CET)
		skidproof_wrmsr(U_CET, calls->cet);
	skidproof_wrmsr(MSR_IA32_SYSENTER_CS, calls->sysenter);
	skidproof_wrmsr(MSR_EFER, calls->efer);
}

/* Of user space, what a program can change. */
static void read_user_state(struct user_state *user)
{
	u32 edx;

	asm volatile("mov %%ds, %0" : "=r" (user->ds));
	asm volatile("mov %%es, %0" : "=r" (user->es));
	asm volatile("mov %%fs, %0" : "=r" (user->fs));
	asm volatile("mov %%gs, %0" : "=r" (user->gs));
	user->fs_base = skidproof_read(MSR_FS_BASE);
	user->gs_base = skidproof_read(MSR_KERNEL_GS_BASE);
	if (native_read_cr4() & X86_CR4_PKE)
		asm volatile("rdpkru" : "=a" (user->pkru), "=d" (edx) : "c" (0));
}

/* With the kernel's own IDT: its handlers bear a GS that is not theirs for a moment. */
static void load_user_state(const struct user_state *user)
{
	if (native_read_cr4() & X86_CR4_PKE)
		asm volatile("wrpkru" : : "a" (user->pkru), "c" (0), "d" (0));
	asm volatile("mov %0, %%ds" : : "r" (user->ds));
	asm volatile("mov %0, %%es" : : "r" (user->es));
	asm volatile("mov %0, %%fs" : : "r" (user->fs));
	asm volatile("swapgs\n\tmov %0, %%gs\n\tswapgs" : : "r" (user->gs));
	skidproof_wrmsr(MSR_FS_BASE, user->fs_base);
	skidproof_wrmsr(MSR_KERNEL_GS_BASE, user->gs_base);
}

/* The process' goes, the program's comes: at first the same, but for protection keys that allow all. */
static void take_user_state(struct running *run)
{
	read_user_state(&run->found);
	if (!run->turns) {
		run->left = run->found;
		run->left.pkru = 0;
	}
	load_user_state(&run->left);
}

static void give_user_state(struct running *run)
{
	read_user_state(&run->left);
	load_user_state(&run->found);
}

/* Interrupts, for a moment, with everything as the kernel has it. */
static void let_in(struct running *run, u64 *ibt)
{
	give_breakpoints(run);
	give_system_calls(run);
	resume_ibt(*ibt);
	local_irq_enable();
	cpu_relax();
	local_irq_disable();
	*ibt = suspend_ibt();
	take_system_calls(run);
	take_breakpoints(run);
}

/* Begins the slice that interrupts are off in. */
static void begin_slice(struct running *run)
{
	WRITE_ONCE(run->file->slice_end, rdtsc() + (u64)tsc_khz * skidproof_limit_ms);
}

/*
 * In slices of at most the limit with interrupts off. They are off when this is
 * called. As often as something that is not the program's makes it leave; until
 * the turn is at its end.
 */
static void execute(struct running *run, u64 turn_end)
{
	struct skidproof_run *plan = run->plan;
	u64 ibt;

	take_breakpoints(run);
	take_system_calls(run);
	ibt = suspend_ibt();
	run->unfinished = false;
	for (;;) {
		run->ending = RETURNED;
		skidproof_space_enter(run->file, &run->space, plan->ring, run->user_rdpmc);
		WRITE_ONCE(run->inside, true);
		if (run->begun)
			skidproof_resume(&run->entry);
		else
			skidproof_enter(&run->entry);
		WRITE_ONCE(run->inside, false);
		skidproof_space_leave(&run->space);
		if (run->disarmed)
			skidproof_rearm(run->file, run->armed);
		run->disarmed = false;
		if (run->ending == SLICED || run->ending == PASSED_ON)
			run->begun = true;
		else if (run->ending != AGAIN)
			break;
		if (fatal_signal_pending(run->task)) {
			plan->outcome = SKIDPROOF_INTERRUPTED;
		} else if (rdtsc() > run->deadline) {
			plan->outcome = SKIDPROOF_TIMED_OUT;
		} else if (run->ending == SLICED || rdtsc() > run->file->slice_end) {
			plan->slices++;
			WRITE_ONCE(run->file->slice_end, 0);
			run->unfinished = rdtsc() > turn_end;
			if (run->unfinished)
				break;
			let_in(run, &ibt);
			begin_slice(run);
			continue;
		} else {
			continue;
		}
		plan->fault_ip = run->begun ? run->frame.rip : plan->entry;
		break;
	}
	WRITE_ONCE(run->file->slice_end, 0);
	resume_ibt(ibt);
	give_system_calls(run);
	if (run->ending == FAULTED) {
		plan->outcome = SKIDPROOF_FAULTED;
	} else if (run->ending == REFUSED) {
		plan->outcome = SKIDPROOF_MSR_FAULT;
		plan->fault_msr = run->refused;
		plan->fault_value = run->refused == MSR_IA32_DEBUGCTLMSR ? run->entry.debugctl :
									   run->left_ctrl;
	}
}

/*
 * The last write of GLOBAL_CTRL, and a write of DEBUGCTL before it that starts a
 * trace, are left to enter.S, right before the program. How many are.
 */
static u32 take_last(struct running *run)
{
	const struct skidproof_run *plan = run->plan;
	const struct skidproof_msr *last = run->enable + plan->enable_count - 1;

	if (!plan->enable_count || last->msr != MSR_CORE_PERF_GLOBAL_CTRL)
		return 0;
	run->ctrl = skidproof_harmless(MSR_CORE_PERF_GLOBAL_CTRL, last->value);
	if (plan->enable_count < 2 || last[-1].msr != MSR_IA32_DEBUGCTLMSR ||
	    !(last[-1].value & DEBUGCTL_RECORDS))
		return 1;
	run->entry.traced = 1;
	run->entry.debugctl = skidproof_harmless(MSR_IA32_DEBUGCTLMSR, last[-1].value);
	return 2;
}

static const struct skidproof_msr *find(const struct skidproof_msr *list, u32 count, u32 msr)
{
	u32 i;

	for (i = 0; i < count; i++) {
		if (list[i].msr == msr)
			return &list[i];
	}
	return NULL;
}

/* With interrupts off; 0 when the program may be entered. */
static int prepare(struct running *run)
{
	struct skidproof_file *file = run->file;
	struct skidproof_run *plan = run->plan;
	const struct skidproof_msr *after;
	u32 last = take_last(run), i, lvt;
	u64 pebs = 0, debugctl;
	int error;

	/* What the handler writes is saved here: an interrupt costs less, and a refusal is heard of. */
	for (i = 0; i < plan->acknowledge_count; i++) {
		error = skidproof_msr_save(file, run->acknowledge[i].msr);
		if (error)
			return error;
	}
	error = write_all(run, run->enable, plan->enable_count - last);
	if (error || plan->outcome != SKIDPROOF_RETURNED)
		return error ?: -EIO;
	if (!last)
		run->ctrl = skidproof_read(MSR_CORE_PERF_GLOBAL_CTRL);
	run->left_ctrl = run->ctrl;
	debugctl = run->entry.traced ? run->entry.debugctl : skidproof_read(MSR_IA32_DEBUGCTLMSR);
	if (run->ctrl)
		pebs = skidproof_sampling(file);
	run->sampling = file->pebs_counters ? pebs : 0;
	if ((pebs || (debugctl & DEBUGCTL_TR_BTS) == DEBUGCTL_TR_BTS) &&
	    !skidproof_stores_inside(file, skidproof_read(MSR_IA32_DS_AREA),
				     run->sampling ? skidproof_read(PEBS_BASE) : 0, pebs,
				     (debugctl & DEBUGCTL_TR_BTS) == DEBUGCTL_TR_BTS))
		return -EPERM;
	/* Whatever counts already stops while the rest is prepared. */
	skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, 0);
	lvt = skidproof_lvt_read(file);
	/* One that was on its way when the plan opened the entry is nobody's. */
	if (file->lvt_open && lvt & APIC_LVT_MASKED) {
		lvt &= ~APIC_LVT_MASKED;
		skidproof_lvt_write(file, lvt);
	}
	run->lvt_open = !(lvt & APIC_LVT_MASKED);
	run->seen = skidproof_read(plan->status_msr);
	error = skidproof_guard_begin(run);
	if (error)
		return error;
	run->can_interrupt = interrupting(file);
	run->entry.ctrl = run->ctrl;
	after = find(run->disable, plan->disable_count, MSR_IA32_DEBUGCTLMSR);
	run->debugctl_after = after ? after->value : debugctl & ~(u64)DEBUGCTL_RECORDS;
	prepare_entry(run);
	return 0;
}

/* The first time. */
static int begin(struct running *run)
{
	struct skidproof_file *file = run->file;

	run->smis = smi_count(file);
	run->machine_checks = machine_checks(file);
	run->error = skidproof_alone(file) ? prepare(run) : -EBUSY;
	run->begin = rdtsc_ordered();
	run->deadline = run->begin + (u64)run->plan->deadline_ms * tsc_khz;
	return run->error;
}

/* Where the program stood when the turn before ended. */
static int go_on(struct running *run)
{
	run->ctrl = run->left_ctrl;
	run->frame.ctrl &= ~run->guard_bit;
	run->error = skidproof_guard_begin(run);
	run->frame.ctrl |= run->guard_bit;
	run->entry.ctrl = run->ctrl;
	run->can_interrupt = interrupting(run->file);
	return run->error;
}

/* What the plan wants behind the program, or behind what kept it from beginning. */
static void finish(struct running *run)
{
	struct skidproof_file *file = run->file;
	struct skidproof_run *plan = run->plan;
	u64 checks;
	u32 i;

	plan->guard = run->guard;
	if (run->error) {
		skidproof_stop(file);
	} else {
		/* With the counters off: what waits need not wait for the lists. */
		local_irq_enable();
		cpu_relax();
		local_irq_disable();
		if (!find(run->disable, plan->disable_count, MSR_CORE_PERF_GLOBAL_CTRL))
			skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, run->left_ctrl);
		run->error = write_all(run, run->disable, plan->disable_count);
		for (i = 0; i < plan->read_count && !run->error; i++) {
			run->error = skidproof_msr_access(file, &run->read[i]);
			fault_of(run, &run->read[i]);
		}
	}
	plan->smis = smi_count(file) - run->smis;
	checks = machine_checks(file) - run->machine_checks;
	/* Linux' own poll may have cleared some meanwhile. */
	plan->machine_checks = (s64)checks > 0 ? checks : run->ending == BROKEN;
}

/*
 * A turn of the run's: between two of them the scheduler is served, and whatever
 * it lets run finds registers, vectors and segments that are its own.
 */
static void turn_here(void *data)
{
	u64 turn_end = rdtsc() + (u64)tsc_khz * (TURN_MS - min(TURN_MS, 2 * skidproof_limit_ms));
	struct running *run = data;
	struct skidproof_file *file = run->file;
	struct skidproof_run *plan = run->plan;

	kernel_fpu_begin();
	local_irq_disable();
	begin_slice(run);
	if (run->turns)
		run->lvt_open = file->lvt_open;
	file->lvt_open = false;
	run->guard = NO_GUARD;
	run->kernel_gs = skidproof_read(MSR_GS_BASE);
	skidproof_guard_try(file);
	skidproof_unpark(file);
	if (!(run->turns ? go_on(run) : begin(run))) {
		vectors_load(run->vectors);
		take_user_state(run);
		skidproof_traps_watch(run);
		execute(run, turn_end);
		plan->tsc = rdtsc_ordered() - run->begin;
		wait_for_late(run);
		skidproof_traps_watch(NULL);
		give_user_state(run);
		give_breakpoints(run);
		if (run->unfinished)
			vectors_save(run->vectors);
		skidproof_guard_end(run);
		plan->result = run->entry.result;
	} else {
		run->unfinished = false;
	}
	run->turns++;
	if (!run->unfinished)
		finish(run);
	WRITE_ONCE(file->slice_end, 0);
	file->unmask_late = plan->pmi_flags & SKIDPROOF_PMI_UNMASK;
	file->lvt_open = run->lvt_open && !(skidproof_lvt_read(file) & APIC_LVT_MASKED);
	skidproof_park(file);
	local_irq_enable();
	kernel_fpu_end();
}

/* --- From and to user space */

static struct skidproof_msr *take_list(struct skidproof_file *file, u64 address, u32 count,
				       bool write, int *error)
{
	struct skidproof_msr *list;
	u32 i;

	if (*error || !count)
		return NULL;
	if (count > SKIDPROOF_MAX_MSRS) {
		*error = -E2BIG;
		return NULL;
	}
	list = vmemdup_user(u64_to_user_ptr(address), (size_t)count * sizeof(*list));
	if (IS_ERR(list)) {
		*error = PTR_ERR(list);
		return NULL;
	}
	for (i = 0; i < count; i++) {
		if (list[i].write != write || list[i].fault)
			*error = -EINVAL;
		else if (skidproof_msr_listed(file, &list[i]))
			*error = -EPERM;
	}
	return list;
}

static bool field_inside(struct skidproof_file *file, u64 address)
{
	const struct skidproof_block *block;

	if (!address)
		return true;
	block = skidproof_block_at(file, address, 8);
	return block && block->use == SKIDPROOF_DEBUG_STORE && !(address & 3);
}

static int check_plan(struct skidproof_file *file, const struct skidproof_run *plan)
{
	const struct skidproof_msr status = { .msr = plan->status_msr };

	if ((plan->ring && plan->ring != 3) || plan->pmi_flags & ~SKIDPROOF_PMI_ALL ||
	    (plan->field_bytes != 4 && plan->field_bytes != 8) || !plan->deadline_ms ||
	    plan->deadline_ms > MAX_DEADLINE_MS)
		return -EINVAL;
	if (plan->log_capacity > SKIDPROOF_MAX_PMIS)
		return -E2BIG;
	if (skidproof_msr_listed(file, &status))
		return -EPERM;
	if (!field_inside(file, plan->pebs_index_address) ||
	    !field_inside(file, plan->pebs_base_address) ||
	    !field_inside(file, plan->bts_index_address) ||
	    !field_inside(file, plan->bts_base_address))
		return -EFAULT;
	return 0;
}

static void clear_results(struct skidproof_run *plan)
{
	size_t from = offsetof(struct skidproof_run, outcome);

	memset((char *)plan + from, 0, sizeof(*plan) - from);
	plan->guard = NO_GUARD;
}

static int do_run(struct skidproof_file *file, struct skidproof_run *plan, bool user_rdpmc)
{
	struct running *run;
	int error = check_plan(file, plan);

	if (error)
		return error;
	run = kzalloc(sizeof(*run), GFP_KERNEL_ACCOUNT);
	if (!run)
		return -ENOMEM;
	clear_results(plan);
	run->file = file;
	run->plan = plan;
	run->task = current;
	run->user_rdpmc = user_rdpmc;
	run->unfinished = true;
	run->vectors = vectors_new();
	if (!run->vectors)
		error = -ENOMEM;
	run->code = skidproof_block_at(file, plan->entry, 1);
	if (!run->code || run->code->use != SKIDPROOF_CODE)
		error = -EFAULT;
	run->enable = take_list(file, plan->enable, plan->enable_count, true, &error);
	run->disable = take_list(file, plan->disable, plan->disable_count, true, &error);
	run->acknowledge = take_list(file, plan->acknowledge, plan->acknowledge_count, true,
				     &error);
	run->read = take_list(file, plan->read, plan->read_count, false, &error);
	if (!error && plan->log_capacity) {
		run->log = kvcalloc(plan->log_capacity, sizeof(*run->log), GFP_KERNEL_ACCOUNT);
		if (!run->log)
			error = -ENOMEM;
	}
	if (!error)
		error = skidproof_space_build(file);
	while (!error && run->unfinished) {
		error = skidproof_on_claimed_cpu(file, turn_here, run);
		cond_resched();
	}
	if (!error)
		error = run->error;
	/* A write of the plan raised #GP: that is an outcome, not an error. */
	if (error == -EIO && plan->outcome == SKIDPROOF_MSR_FAULT)
		error = 0;
	if (!error && plan->pmis &&
	    copy_to_user(u64_to_user_ptr(plan->log), run->log, plan->pmis * sizeof(*run->log)))
		error = -EFAULT;
	if (!error && plan->read_count &&
	    copy_to_user(u64_to_user_ptr(plan->read), run->read,
			 plan->read_count * sizeof(*run->read)))
		error = -EFAULT;
	kvfree(run->enable);
	kvfree(run->disable);
	kvfree(run->acknowledge);
	kvfree(run->read);
	kvfree(run->log);
	vectors_free(run->vectors);
	kfree(run);
	return error;
}

/* Under file->lock. What came of it is in `plan` and, where they fit, its lists. */
int skidproof_do_run(struct skidproof_file *file, struct skidproof_run *plan)
{
	return do_run(file, plan, false);
}

/* --- What ring 3 needs of memory */

int skidproof_landing_new(struct skidproof_file *file)
{
	struct skidproof_block *landing = skidproof_block_new(file, PAGE_SIZE, SKIDPROOF_CODE);

	if (IS_ERR(landing))
		return PTR_ERR(landing);
	memcpy(page_address(landing->pages[0]), landing_code, sizeof(landing_code));
	memcpy(page_address(landing->pages[0]) + USER_RDPMC, rdpmc_code, sizeof(rdpmc_code));
	landing->internal = true;
	file->landing = landing;
	return 0;
}

/* RDPMC at ring 3, under file->lock. */
int skidproof_user_rdpmc(struct skidproof_file *file, struct skidproof_rdpmc *read)
{
	struct skidproof_run plan = {
		.entry = file->landing->address + USER_RDPMC,
		.iterations = read->index,
		.status_msr = MSR_CORE_PERF_GLOBAL_STATUS,
		.field_bytes = 8,
		.deadline_ms = RDPMC_MS,
		.ring = 3,
	};
	int error = do_run(file, &plan, read->cr4_pce);

	if (error)
		return error;
	if (plan.outcome != SKIDPROOF_RETURNED &&
	    (plan.outcome != SKIDPROOF_FAULTED || plan.fault_vector != X86_TRAP_GP))
		return -EIO;
	read->fault = plan.outcome == SKIDPROOF_FAULTED;
	read->value = read->fault ? 0 : plan.result;
	return 0;
}
