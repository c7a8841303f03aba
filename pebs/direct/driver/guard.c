// SPDX-License-Identifier: GPL-2.0
/*
 * The bound on time with interrupts off: a counter that the plan leaves alone
 * counts cycles, and its interrupt ends the slice.
 */
#include <linux/perf_event.h>
#include <asm/msr.h>
#include <asm/tsc.h>

#include "running.h"

#define EVTSEL_GUARD 0x53003c /* core cycles at every ring, with interrupt */
#define FIXED_GUARD 0xbULL /* every ring, with interrupt */
#define FIXED_INDEX 0x40000000U

/* From where it counts to its overflow. */
void skidproof_guard_start(const struct running *run)
{
	if (run->guard == NO_GUARD)
		return;
	if (run->guard & FIXED_INDEX)
		skidproof_wrmsr(MSR_CORE_PERF_FIXED_CTR0 + (run->guard & ~FIXED_INDEX),
				run->guard_start);
	else
		skidproof_wrmsr(MSR_ARCH_PERFMON_PERFCTR0 + run->guard, run->guard_start);
}

static u64 mask_of(u32 width)
{
	return width >= 64 ? ~0ULL : BIT_ULL(width) - 1;
}

/* A counter that the plan leaves alone: a fixed one that counts cycles, else a general one. */
void skidproof_guard_begin(struct running *run)
{
	const struct skidproof_file *file = run->file;
	u64 ticks = (u64)tsc_khz * skidproof_limit_ms, select;
	static const u32 order[] = { 2, 1, 0 };
	int i;

	run->guard = NO_GUARD;
	run->guard_bit = 0;
	if (!run->lvt_open)
		return;
	run->fixed_ctrl = skidproof_read(MSR_CORE_PERF_FIXED_CTR_CTRL);
	for (i = 0; i < ARRAY_SIZE(order) && run->guard == NO_GUARD; i++) {
		u32 n = order[i];

		if (n >= file->fixed_counters || run->fixed_ctrl >> (4 * n) & 0xf ||
		    run->ctrl & BIT_ULL(32 + n))
			continue;
		run->guard = FIXED_INDEX | n;
		run->guard_bit = BIT_ULL(32 + n);
		run->guard_start = (0 - ticks) & mask_of(file->fixed_width);
		run->guard_counter = skidproof_read(MSR_CORE_PERF_FIXED_CTR0 + n);
		skidproof_wrmsr(MSR_CORE_PERF_FIXED_CTR_CTRL,
				run->fixed_ctrl | FIXED_GUARD << (4 * n));
	}
	for (i = file->gp_counters - 1; i >= 0 && run->guard == NO_GUARD; i--) {
		if (run->ctrl & BIT_ULL(i) ||
		    skidproof_rdmsr(MSR_ARCH_PERFMON_EVENTSEL0 + i, &select) || select)
			continue;
		run->guard = i;
		run->guard_bit = BIT_ULL(i);
		/* What a 32-bit write can say. */
		run->guard_start = (u32)(0 - min_t(u64, ticks, 0x7fffffff));
		run->guard_counter = skidproof_read(MSR_ARCH_PERFMON_PERFCTR0 + i);
		skidproof_wrmsr(MSR_ARCH_PERFMON_EVENTSEL0 + i, EVTSEL_GUARD);
	}
	run->ctrl |= run->guard_bit;
	skidproof_guard_start(run);
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
		u32 alias = run->file->capabilities & BIT_ULL(13) ? 0x4c1 :
								     MSR_ARCH_PERFMON_PERFCTR0;

		skidproof_wrmsr(MSR_ARCH_PERFMON_EVENTSEL0 + n, 0);
		skidproof_wrmsr(alias + n, run->guard_counter);
	}
	if (skidproof_read(MSR_CORE_PERF_GLOBAL_STATUS) & run->guard_bit)
		skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_OVF_CTRL, run->guard_bit);
}
