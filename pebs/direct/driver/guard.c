// SPDX-License-Identifier: GPL-2.0
/*
 * The bound on time with interrupts off: another CPU looks at the clock and sends
 * an NMI, which nothing that a plan or a program does keeps away. Where there is
 * no other CPU, a counter that the plan leaves alone counts cycles, and its
 * interrupt ends the slice. Each PMI looks at the clock as well.
 */
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/math64.h>
#include <linux/moduleparam.h>
#include <linux/perf_event.h>
#include <linux/smp.h>
#include <linux/version.h>
#include <asm/apic.h>
#include <asm/irq_vectors.h>
#include <asm/msr.h>
#include <asm/tsc.h>

#include "running.h"

static bool without_bound;
module_param_named(unbounded, without_bound, bool, 0444);
MODULE_PARM_DESC(unbounded, "with one CPU, run also what nothing could end (default 0)");

#define EVTSEL_GUARD 0x53003c /* core cycles at every ring, with interrupt */
#define FIXED_GUARD 0xbULL /* every ring, with interrupt */
#define FIXED_INDEX 0x40000000U

/* --- Another CPU */

/* Between two looks where there is nothing to see: twice in a slice, so that none begins unseen. */
static ktime_t interval(void)
{
	return ns_to_ktime((u64)skidproof_limit_ms * NSEC_PER_MSEC / 2);
}

/* It calls again if it is not heard. */
#define AGAIN_NS (100 * NSEC_PER_USEC)

static enum hrtimer_restart look(struct hrtimer *timer)
{
	struct skidproof_file *file = container_of(timer, struct skidproof_file, watch);
	u64 end = READ_ONCE(file->slice_end), now = rdtsc();
	ktime_t next = interval();

	/* A CPU that goes offline hands its timers on. */
	WRITE_ONCE(file->watcher, smp_processor_id());
	if (end && now > end && file->watcher != file->cpu) {
		WRITE_ONCE(file->called, true);
		apic->send_IPI(file->cpu, NMI_VECTOR);
		next = ns_to_ktime(AGAIN_NS);
	} else if (end && now <= end) {
		u64 left = mul_u64_u32_div(end - now, NSEC_PER_MSEC, tsc_khz);

		next = min_t(ktime_t, next, ns_to_ktime(max_t(u64, left, AGAIN_NS)));
	}
	hrtimer_forward_now(timer, next);
	return HRTIMER_RESTART;
}

static void begin_here(void *data)
{
	struct skidproof_file *file = data;

	hrtimer_start(&file->watch, interval(), HRTIMER_MODE_REL_PINNED_HARD);
}

/* One whose interrupts no run keeps off. */
static unsigned int choose(const struct skidproof_file *file)
{
	unsigned int cpu;

	for_each_online_cpu(cpu) {
		if (cpu != file->cpu && !skidproof_owned(cpu))
			return cpu;
	}
	return nr_cpu_ids;
}

static void start(struct skidproof_file *file)
{
	unsigned int other = choose(file);

	file->watcher = file->cpu;
	if (other >= nr_cpu_ids)
		return;
	file->watcher = other;
	smp_call_function_single(other, begin_here, file, 1);
}

/* When a CPU is claimed, under cpus_read_lock(). */
void skidproof_watch_begin(struct skidproof_file *file)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(&file->watch, look, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init(&file->watch, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	file->watch.function = look;
#endif
	file->slice_end = 0;
	file->called = false;
	start(file);
}

/* Before the CPU goes back: what was sent has arrived when the next function is called there. */
void skidproof_watch_end(struct skidproof_file *file)
{
	hrtimer_cancel(&file->watch);
}

/*
 * Whether another CPU looks: one that is claimed may have its interrupts off for
 * as long as this one, each waiting for the other. None goes or comes during a
 * turn, and a claim waits for the turns that it may have watched.
 */
bool skidproof_watched(const struct skidproof_file *file)
{
	int watcher = READ_ONCE(file->watcher);

	return watcher != file->cpu && cpu_online(watcher) && !skidproof_owned(watcher);
}

/* Before a call goes to the claimed CPU, under cpus_read_lock(): CPUs may have gone, come or been claimed. */
void skidproof_watch_check(struct skidproof_file *file)
{
	if (skidproof_watched(file))
		return;
	hrtimer_cancel(&file->watch);
	start(file);
}

/* --- A counter */

static u64 mask_of(u32 width)
{
	return width >= 64 ? ~0ULL : BIT_ULL(width) - 1;
}

/* So that it overflows at the end of the slice. */
void skidproof_guard_start(const struct running *run)
{
	u64 limit = (u64)tsc_khz * skidproof_limit_ms, left = run->file->slice_end - rdtsc(), counts;

	if (run->guard == NO_GUARD)
		return;
	/* The slice is over, and the next one begins before this counts. */
	if (left > limit)
		left = limit;
	counts = max_t(u64, mul_u64_u64_div_u64(run->guard_limit, left, limit), 1);
	if (run->guard & FIXED_INDEX)
		skidproof_wrmsr(MSR_CORE_PERF_FIXED_CTR0 + (run->guard & ~FIXED_INDEX),
				(0 - counts) & mask_of(run->file->fixed_width));
	else /* what a 32-bit write can say */
		skidproof_wrmsr(MSR_ARCH_PERFMON_PERFCTR0 + run->guard,
				(u32)(0 - min_t(u64, counts, 0x7fffffff)));
}

static int unbounded(void)
{
	return without_bound ? 0 : -EDEADLK;
}

/* How long it is looked at how fast a counter counts. */
#define TRIAL_US 20

/* How far a counter that stands at 0, and is about to count cycles, counts in the limit. */
static u64 counts_in_limit(u32 counter, u64 bit)
{
	u64 begin = rdtsc_ordered(), ticks = (u64)tsc_khz * TRIAL_US / 1000;

	skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, bit);
	while (rdtsc_ordered() - begin < ticks)
		cpu_relax();
	skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, 0);
	/* Rather too long a time, and so too early an interrupt. */
	ticks = rdtsc_ordered() - begin;
	return mul_u64_u64_div_u64(skidproof_read(counter), (u64)tsc_khz * skidproof_limit_ms, ticks);
}

/*
 * How fast cycles go by on this CPU, once: the core's, and those of fixed counter
 * 2, of which there may be one for each cycle of the TSC or far fewer. With
 * nothing on, before the plan changes a register.
 */
void skidproof_guard_try(struct skidproof_file *file)
{
	u64 fixed_ctrl, fixed = 0, select, counter;

	if (skidproof_watched(file) || skidproof_dry_run || file->core_cycles)
		return;
	select = skidproof_read(MSR_ARCH_PERFMON_EVENTSEL0);
	counter = skidproof_read(MSR_ARCH_PERFMON_PERFCTR0);
	skidproof_wrmsr(MSR_ARCH_PERFMON_PERFCTR0, 0);
	skidproof_wrmsr(MSR_ARCH_PERFMON_EVENTSEL0, EVTSEL_GUARD & ~ARCH_PERFMON_EVENTSEL_INT);
	file->core_cycles = counts_in_limit(MSR_ARCH_PERFMON_PERFCTR0, BIT_ULL(0));
	skidproof_wrmsr(MSR_ARCH_PERFMON_EVENTSEL0, select);
	skidproof_wrmsr(skidproof_full_width_alias(file, MSR_ARCH_PERFMON_PERFCTR0), counter);
	if (file->fixed_counters < 3)
		return;
	fixed_ctrl = skidproof_read(MSR_CORE_PERF_FIXED_CTR_CTRL);
	fixed = skidproof_read(MSR_CORE_PERF_FIXED_CTR0 + 2);
	skidproof_wrmsr(MSR_CORE_PERF_FIXED_CTR0 + 2, 0);
	skidproof_wrmsr(MSR_CORE_PERF_FIXED_CTR_CTRL, 3ULL << 8);
	file->reference_cycles = counts_in_limit(MSR_CORE_PERF_FIXED_CTR0 + 2, BIT_ULL(34));
	skidproof_wrmsr(MSR_CORE_PERF_FIXED_CTR_CTRL, fixed_ctrl);
	skidproof_wrmsr(MSR_CORE_PERF_FIXED_CTR0 + 2, fixed);
}

/* Counters whose values go into records, whether they count or not. */
static u64 recorded(const struct skidproof_file *file)
{
	u64 counters = 0, data_cfg;
	u32 n;

	/* MSR_PEBS_DATA_CFG: bits 47:32 general counters, 55:48 fixed ones. */
	if (!file->pebs_counters) {
		data_cfg = skidproof_read(PEBS_DATA_CFG);
		return (data_cfg >> 32 & 0xffff) | (data_cfg >> 48 & 0xff) << FIXED_POSITION;
	}
	for (n = 0; n < BITS_PER_LONG; n++) {
		if (file->counters & BIT_ULL(n) &&
		    skidproof_read(skidproof_bank_msr(n, BANK_CFG_C)) & CFG_C_ALLOW)
			counters |= BIT_ULL(n);
	}
	return counters;
}

/*
 * A counter of cycles that the plan leaves alone: a fixed one, else a general
 * one. -EDEADLK: nothing bounds the run.
 */
int skidproof_guard_begin(struct running *run)
{
	const struct skidproof_file *file = run->file;
	const u64 in_limit[] = { 0, file->core_cycles, file->reference_cycles };
	u64 select, taken;
	int i;

	run->guard = NO_GUARD;
	run->guard_bit = 0;
	if (skidproof_watched(file))
		return 0;
	if (!run->lvt_open || skidproof_dry_run)
		return unbounded();
	run->fixed_ctrl = skidproof_read(MSR_CORE_PERF_FIXED_CTR_CTRL);
	taken = run->ctrl | recorded(file);
	for (i = ARRAY_SIZE(in_limit) - 1; i > 0 && run->guard == NO_GUARD; i--) {
		if (i >= file->fixed_counters || !in_limit[i] || run->fixed_ctrl >> (4 * i) & 0xf ||
		    taken & BIT_ULL(32 + i))
			continue;
		run->guard = FIXED_INDEX | i;
		run->guard_bit = BIT_ULL(32 + i);
		run->guard_limit = in_limit[i];
		run->guard_counter = skidproof_read(MSR_CORE_PERF_FIXED_CTR0 + i);
		skidproof_wrmsr(MSR_CORE_PERF_FIXED_CTR_CTRL, run->fixed_ctrl | FIXED_GUARD << (4 * i));
	}
	for (i = file->gp_counters - 1; i >= 0 && run->guard == NO_GUARD && file->core_cycles; i--) {
		if (taken & BIT_ULL(i) ||
		    skidproof_rdmsr(MSR_ARCH_PERFMON_EVENTSEL0 + i, &select) || select)
			continue;
		run->guard = i;
		run->guard_bit = BIT_ULL(i);
		run->guard_limit = file->core_cycles;
		run->guard_counter = skidproof_read(MSR_ARCH_PERFMON_PERFCTR0 + i);
		skidproof_wrmsr(MSR_ARCH_PERFMON_EVENTSEL0 + i, EVTSEL_GUARD);
	}
	if (run->guard == NO_GUARD)
		return unbounded();
	run->ctrl |= run->guard_bit;
	skidproof_guard_start(run);
	return 0;
}

void skidproof_guard_end(struct running *run)
{
	u32 n = run->guard & ~FIXED_INDEX;

	if (run->guard == NO_GUARD)
		return;
	if (run->guard & FIXED_INDEX) {
		skidproof_wrmsr(MSR_CORE_PERF_FIXED_CTR_CTRL, run->fixed_ctrl);
		skidproof_wrmsr(MSR_CORE_PERF_FIXED_CTR0 + n, run->guard_counter);
	} else {
		skidproof_wrmsr(MSR_ARCH_PERFMON_EVENTSEL0 + n, 0);
		skidproof_wrmsr(skidproof_full_width_alias(run->file, MSR_ARCH_PERFMON_PERFCTR0 + n),
				run->guard_counter);
	}
	if (skidproof_read(MSR_CORE_PERF_GLOBAL_STATUS) & run->guard_bit)
		skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_OVF_CTRL, run->guard_bit);
}
