// SPDX-License-Identifier: GPL-2.0
/*
 * One processor and its registers: who may own it, which MSRs may be touched,
 * and how every one of them goes back.
 */
#include <linux/cpu.h>
#include <linux/cpufeature.h>
#include <linux/cpuhotplug.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/reboot.h>
#include <linux/security.h>
#include <linux/smp.h>
#include <linux/suspend.h>
#include <linux/sysfs.h>
#include <linux/version.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 14, 0)
#include <linux/panic_notifier.h>
#endif
#include <asm/apic.h>
#include <asm/msr.h>
#include <asm/nmi.h>
#include <asm/processor.h>
#include <asm/tsc.h>

#include "skidproof.h"

#ifndef MSR_PPIN_CTL
#define MSR_PPIN_CTL 0x4e
#define MSR_PPIN 0x4f
#endif
#define CORE_PERF_GLOBAL_STATUS_SET 0x391
#define LVT_PMI 0x834
#define MISC_ENABLE_FACTS (BIT_ULL(7) | BIT_ULL(11) | BIT_ULL(12))
#define DS_BYTES 0x60

unsigned int skidproof_limit_ms = 10;
module_param_named(limit_ms, skidproof_limit_ms, uint, 0444);
MODULE_PARM_DESC(limit_ms, "longest time with interrupts off, in ms: 1 to 1000 (default 10)");
bool skidproof_dry_run;
module_param_named(dry_run, skidproof_dry_run, bool, 0444);
MODULE_PARM_DESC(dry_run, "do all but start counters and traces (default 0)");

/* Which file owns each CPU, and whether the counters are reserved. */
static DEFINE_MUTEX(claims);
static DEFINE_PER_CPU(struct skidproof_file *, owner);
static unsigned int claimed;
static unsigned int reserved_counters;
static bool suspending;

bool skidproof_owned(unsigned int cpu)
{
	return READ_ONCE(per_cpu(owner, cpu));
}

/* --- Going there */

struct call {
	void (*function)(void *data);
	void *data;
};

static int call_here(void *data)
{
	const struct call *call = data;

	preempt_disable();
	call->function(call->data);
	preempt_enable();
	return 0;
}

/*
 * Calls a function that does not sleep on the file's CPU, without preemption:
 * at once where we are there already, else from a worker there. Under
 * cpus_read_lock().
 */
static int on_cpu(struct skidproof_file *file, void (*function)(void *), void *data)
{
	struct call call = { function, data };

	preempt_disable();
	if (smp_processor_id() == file->cpu) {
		function(data);
		preempt_enable();
		return 0;
	}
	preempt_enable();
	return smp_call_on_cpu(file->cpu, call_here, &call, false);
}

/* Before a call goes to any length; the CPU may still go afterwards. */
int skidproof_check_owner(const struct skidproof_file *file)
{
	if (file->cpu < 0)
		return -ENODEV;
	return READ_ONCE(file->lost) ? -ESHUTDOWN : 0;
}

struct claimed_call {
	struct skidproof_file *file;
	struct call call;
	int error;
};

static void claimed_here(void *data)
{
	struct claimed_call *claimed = data;

	claimed->error = skidproof_check_owner(claimed->file);
	if (!claimed->error)
		claimed->call.function(claimed->call.data);
}

/*
 * The same on the CPU that the file has claimed, which stays online meanwhile.
 * Under file->lock. Nothing of user space is touched under cpus_read_lock(),
 * since a page of it may take as long as its owner likes.
 */
int skidproof_on_claimed_cpu(struct skidproof_file *file, void (*function)(void *), void *data)
{
	struct claimed_call claimed = { file, { function, data }, 0 };
	int error;

	cpus_read_lock();
	error = skidproof_check_owner(file);
	if (!error) {
		skidproof_watch_check(file);
		error = on_cpu(file, claimed_here, &claimed);
	}
	cpus_read_unlock();
	return error ?: claimed.error;
}

/* --- The LVT entry for performance counters */

u32 skidproof_lvt_read(const struct skidproof_file *file)
{
	u64 value;

	if (!file->x2apic)
		return readl((void __iomem *)(APIC_BASE + APIC_LVTPC));
	return skidproof_rdmsr(LVT_PMI, &value) ? APIC_LVT_MASKED : (u32)value;
}

void skidproof_lvt_write(const struct skidproof_file *file, u32 value)
{
	if (file->x2apic)
		skidproof_wrmsr(LVT_PMI, value);
	else
		writel(value, (void __iomem *)(APIC_BASE + APIC_LVTPC));
}

/* --- Which MSRs */

struct msr_range {
	u32 first, last;
	u8 write;
};

/*
 * The PMU, the DS area and what records branches. Registers that no write
 * changes are writable as well: that they refuse is a promise to be tested.
 */
static const struct msr_range ranges[] = {
	{ 0x1b, 0x1b, 0 },	/* IA32_APIC_BASE */
	{ 0x34, 0x34, 0 },	/* MSR_SMI_COUNT */
	{ 0x40, 0x47, 1 },	/* MSR_LASTBRANCH_x_FROM_IP of Core 2 */
	{ MSR_PPIN_CTL, MSR_PPIN, 0 },
	{ 0x60, 0x67, 1 },	/* MSR_LASTBRANCH_x_TO_IP of Core 2 */
	{ 0x8b, 0x8b, 0 },	/* IA32_BIOS_SIGN_ID */
	{ 0xc1, 0xc8, 1 },	/* IA32_PMCx */
	{ 0xc9, 0xcc, 0 },	/* … that there are not: counters above have no such address */
	{ 0xce, 0xce, 0 },	/* MSR_PLATFORM_INFO */
	{ 0xe7, 0xe8, 0 },	/* IA32_MPERF, IA32_APERF */
	{ 0x179, 0x17a, 0 },	/* IA32_MCG_CAP, IA32_MCG_STATUS */
	{ 0x186, 0x18d, 1 },	/* IA32_PERFEVTSELx */
	{ 0x18e, 0x191, 0 },	/* … that there are not */
	{ 0x1a0, 0x1a0, 1 },	/* IA32_MISC_ENABLE: only what is read-only */
	{ 0x1a6, 0x1a7, 1 },	/* MSR_OFFCORE_RSP_x */
	{ 0x1c8, 0x1c9, 1 },	/* MSR_LBR_SELECT, MSR_LASTBRANCH_TOS */
	{ 0x1d9, 0x1d9, 1 },	/* IA32_DEBUGCTL */
	{ 0x309, 0x310, 1 },	/* IA32_FIXED_CTRx */
	{ 0x329, 0x329, 1 },	/* MSR_PERF_METRICS */
	{ 0x345, 0x345, 1 },	/* IA32_PERF_CAPABILITIES */
	{ 0x38d, 0x392, 1 },	/* the global registers */
	{ 0x39c, 0x39c, 1 },	/* MSR_PEBS_NUM_ALT */
	{ 0x3f1, 0x3f2, 1 },	/* IA32_PEBS_ENABLE, MSR_PEBS_DATA_CFG */
	{ PEBS_BASE, PEBS_INDEX, 1 },
	{ 0x3f6, 0x3f7, 1 },	/* MSR_PEBS_LD_LAT_THRESHOLD, MSR_PEBS_FRONTEND */
	{ 0x400, 0x47f, 0 },	/* IA32_MCi_… */
	{ 0x4c1, 0x4c8, 1 },	/* IA32_A_PMCx */
	{ 0x4c9, 0x4cc, 0 },	/* … that there are not */
	{ 0x600, 0x600, 1 },	/* IA32_DS_AREA */
	{ 0x680, 0x69f, 1 },	/* MSR_LASTBRANCH_x_FROM_IP */
	{ 0x6c0, 0x6df, 1 },	/* MSR_LASTBRANCH_x_TO_IP */
	{ LVT_PMI, LVT_PMI, 1 },
	{ 0xdc0, 0xddf, 1 },	/* MSR_LBR_INFO_x */
	{ 0x1200, 0x121f, 1 },	/* MSR_ARCH_LBR_INFO_x */
	{ 0x14ce, 0x14cf, 1 },	/* MSR_ARCH_LBR_CTL, MSR_ARCH_LBR_DEPTH */
	{ 0x1500, 0x151f, 1 },	/* MSR_ARCH_LBR_FROM_x */
	{ 0x1600, 0x161f, 1 },	/* MSR_ARCH_LBR_TO_x */
	{ GP_BANK, GP_BANK + 0x7f, 1 },	/* IA32_PMC_GPn_CTR and its likes */
	{ FIXED_BANK, FIXED_BANK + 0x7f, 1 },	/* IA32_PMC_FXm_CTR … */
};

/* What a register holds once a value is written to `written`. */
static u64 after(u32 msr, u32 written, u64 value)
{
	return msr == written ? value : skidproof_read(msr);
}

/* Counters with PEBS, or their bits in IA32_PEBS_ENABLE, once a value is written to `written`. */
static u64 sampling_after(const struct skidproof_file *file, u32 written, u64 value)
{
	u64 sampling = 0;
	u32 n;

	if (!file->pebs_counters)
		return after(PEBS_ENABLE, written, value);
	for (n = 0; n < BITS_PER_LONG; n++) {
		if (file->pebs_counters & BIT_ULL(n) &&
		    after(skidproof_bank_msr(n, BANK_CFG_C), written, value) & CFG_C_PEBS)
			sampling |= BIT_ULL(n);
	}
	return sampling;
}

u64 skidproof_sampling(const struct skidproof_file *file)
{
	return sampling_after(file, 0, 0);
}

/* Called on the CPU. Nothing may record to memory that is not the file's. */
static bool records_elsewhere(struct skidproof_file *file, u32 msr, u64 value)
{
	u64 ctrl = after(MSR_CORE_PERF_GLOBAL_CTRL, msr, value);
	u64 trace = after(MSR_IA32_DEBUGCTLMSR, msr, value) & DEBUGCTL_TR_BTS;
	u64 area = after(MSR_IA32_DS_AREA, msr, value), base = 0;
	bool sampling = ctrl && sampling_after(file, msr, value), tracing = trace == DEBUGCTL_TR_BTS;

	if (sampling && file->pebs_counters)
		base = after(PEBS_BASE, msr, value);
	return (sampling || tracing) &&
	       !skidproof_stores_inside(file, area, base, sampling, tracing);
}

/* Whether a register of version 6 is the one with a counter's architectural PEBS. */
static bool configures_pebs(const struct skidproof_file *file, u32 msr)
{
	u32 at = msr & 0x7f;
	u32 position = at / BANK_STRIDE + (msr < FIXED_BANK ? 0 : FIXED_POSITION);

	return (msr & ~0xffU) == GP_BANK && at % BANK_STRIDE == BANK_CFG_C &&
	       file->pebs_counters & BIT_ULL(position);
}

/* Whether the list lets an access through; 0 or -EPERM. */
int skidproof_msr_listed(const struct skidproof_file *file, const struct skidproof_msr *access)
{
	const struct msr_range *range;

	for (range = ranges; range < ranges + ARRAY_SIZE(ranges); range++) {
		if (access->msr >= range->first && access->msr <= range->last)
			return range->write || !access->write ? 0 : -EPERM;
	}
	return -EPERM;
}

/* Whether it lets this value through, as things stand on the CPU that this is called on. */
static bool value_allowed(struct skidproof_file *file, u32 msr, u64 value)
{
	switch (msr) {
	case MSR_IA32_MISC_ENABLE:
		return !((skidproof_read(MSR_IA32_MISC_ENABLE) ^ value) & ~MISC_ENABLE_FACTS);
	case LVT_PMI:
		/* Masked, an NMI, or as it was found: no vector of someone else's. */
		if (value >> 32)
			return false;
		return (value & APIC_LVT_MASKED) || value == file->lvt ||
		       (value & APIC_MODE_MASK) == APIC_DM_NMI;
	case PEBS_ENABLE:
	case PEBS_BASE:
	case MSR_CORE_PERF_GLOBAL_CTRL:
	case MSR_IA32_DEBUGCTLMSR:
	case MSR_IA32_DS_AREA:
		return !records_elsewhere(file, msr, value);
	default:
		return !configures_pebs(file, msr) || !records_elsewhere(file, msr, value);
	}
}

/* Whether a buffer of architectural PEBS lies in one of the file's. */
static bool buffer_inside(struct skidproof_file *file, u64 base)
{
	u64 at = base & PAGE_MASK, bytes = PAGE_SIZE << (base & PEBS_BASE_SIZE);
	const struct skidproof_block *block;

	list_for_each_entry(block, &file->blocks, list) {
		u64 size = (u64)block->count * PAGE_SIZE;

		if (block->use == SKIDPROOF_PEBS_BUFFER && at >= block->physical &&
		    at - block->physical < size && bytes <= size - (at - block->physical))
			return true;
	}
	return false;
}

/*
 * Whether a DS area and the buffers that it speaks of, or that of architectural
 * PEBS, lie in memory of the file's for that. This keeps mistakes from other
 * memory; whoever may use this device executes code in ring 0, so it can be no
 * more than that.
 */
bool skidproof_stores_inside(struct skidproof_file *file, u64 ds_area, u64 pebs_base, bool pebs,
			     bool bts)
{
	struct skidproof_block *area = skidproof_block_at(file, ds_area, DS_BYTES);
	unsigned int which;

	if (pebs && file->pebs_counters) {
		if (!buffer_inside(file, pebs_base))
			return false;
		pebs = false;
	}
	if (!pebs && !bts)
		return true;
	if (!area || area->use != SKIDPROOF_DEBUG_STORE)
		return false;
	for (which = 0; which < 2; which++) {
		const u64 *fields = (const u64 *)(uintptr_t)ds_area + (which ? 4 : 0);
		u64 base = READ_ONCE(fields[0]), index = READ_ONCE(fields[1]);
		u64 maximum = READ_ONCE(fields[2]), end;
		struct skidproof_block *buffer;

		if (!(which ? pebs : bts))
			continue;
		buffer = skidproof_block_at(file, base, 0);
		if (!buffer || buffer->use != SKIDPROOF_DEBUG_STORE)
			return false;
		end = (u64)(uintptr_t)buffer->address + (u64)buffer->count * PAGE_SIZE;
		if (index < (u64)(uintptr_t)buffer->address || index > end || maximum > end)
			return false;
	}
	return true;
}

/* Where a counter takes a value of its whole width. */
u32 skidproof_full_width_alias(const struct skidproof_file *file, u32 msr)
{
	bool counter = msr >= 0xc1 && msr <= 0xc8;

	return counter && (file->capabilities & BIT_ULL(13)) ? msr - 0xc1 + 0x4c1 : msr;
}

/* Before the first write. Where there is no room the write is refused. */
int skidproof_msr_save(struct skidproof_file *file, u32 msr)
{
	u64 value;
	u32 i;

	/* Write-1 registers have nothing to go back to, and of MISC_ENABLE no write is let through that changes it. */
	if (msr == MSR_CORE_PERF_GLOBAL_OVF_CTRL || msr == CORE_PERF_GLOBAL_STATUS_SET ||
	    msr == LVT_PMI || msr == MSR_CORE_PERF_GLOBAL_CTRL || msr == MSR_IA32_MISC_ENABLE)
		return 0;
	if (msr >= 0x4c1 && msr <= 0x4c8)
		msr = msr - 0x4c1 + 0xc1;
	for (i = 0; i < file->saved_count; i++) {
		if (file->saved[i].msr == msr)
			return 0;
	}
	if (skidproof_rdmsr(msr, &value))
		return 0;
	if (file->saved_count == SAVED_MSRS)
		return -ENOSPC;
	file->saved[file->saved_count].msr = msr;
	file->saved[file->saved_count++].value = value;
	return 0;
}

/* Counters change although nobody writes to them; and what makes them count and record is written in many places. */
static void save_first(struct skidproof_file *file)
{
	static const u32 control[] = { MSR_IA32_DEBUGCTLMSR, PEBS_ENABLE, PEBS_BASE, PEBS_INDEX,
				       MSR_IA32_DS_AREA, MSR_CORE_PERF_FIXED_CTR_CTRL };
	u32 n, which;

	for (n = 0; n < ARRAY_SIZE(control); n++)
		skidproof_msr_save(file, control[n]);
	for (n = 0; n < file->gp_counters; n++)
		skidproof_msr_save(file, MSR_ARCH_PERFMON_PERFCTR0 + n);
	for (n = 0; n < file->fixed_counters; n++)
		skidproof_msr_save(file, MSR_CORE_PERF_FIXED_CTR0 + n);
	for (n = 0; n < BITS_PER_LONG && file->bank; n++) {
		for (which = BANK_CTR; which < BANK_STRIDE; which++) {
			if (file->counters & BIT_ULL(n))
				skidproof_msr_save(file, skidproof_bank_msr(n, which));
		}
	}
}

/*
 * What is written where a value is given: with dry_run nothing that counts,
 * records or traces. Without GLOBAL_CTRL no architectural PEBS records.
 */
u64 skidproof_harmless(u32 msr, u64 value)
{
	if (!skidproof_dry_run)
		return value;
	switch (msr) {
	case MSR_CORE_PERF_GLOBAL_CTRL:
	case PEBS_ENABLE:
		return 0;
	case MSR_IA32_DEBUGCTLMSR:
		return value & ~(u64)DEBUGCTL_RECORDS;
	default:
		return value;
	}
}

/* Executes one listed access on the CPU, where what a write changes is saved already; #GP is in access->fault. */
int skidproof_msr_execute(struct skidproof_file *file, struct skidproof_msr *access)
{
	if (access->write && !value_allowed(file, access->msr, access->value))
		return -EPERM;
	if (access->msr == LVT_PMI) {
		access->fault = 0;
		if (access->write) {
			file->lvt_open = false;
			skidproof_lvt_write(file, access->value);
			file->lvt_open = !(access->value & APIC_LVT_MASKED);
		} else {
			access->value = skidproof_lvt_read(file);
		}
		return 0;
	}
	if (access->write)
		access->fault = skidproof_wrmsr(access->msr,
						skidproof_harmless(access->msr, access->value));
	else
		access->fault = skidproof_rdmsr(access->msr, &access->value);
	return 0;
}

int skidproof_msr_access(struct skidproof_file *file, struct skidproof_msr *access)
{
	int error = access->write ? skidproof_msr_save(file, access->msr) : 0;

	return error ?: skidproof_msr_execute(file, access);
}

/* As in traps.c: what handlers get here by. */
NOKPROBE_SYMBOL(after);
NOKPROBE_SYMBOL(sampling_after);
NOKPROBE_SYMBOL(skidproof_sampling);
NOKPROBE_SYMBOL(configures_pebs);
NOKPROBE_SYMBOL(buffer_inside);
NOKPROBE_SYMBOL(records_elsewhere);
NOKPROBE_SYMBOL(value_allowed);

static void forget_parked(struct skidproof_file *file)
{
	file->parked_ctrl = file->parked_records = 0;
}

/* What the counters of version 6 count, which no reservation keeps from others. */
static void remember_selects(struct skidproof_file *file)
{
	u32 n;

	if (!file->bank)
		return;
	for (n = 0; n < FIXED_POSITION; n++) {
		if (file->counters & BIT_ULL(n))
			file->selects[n] = skidproof_read(skidproof_bank_msr(n, BANK_CFG_A));
	}
	file->fixed_select = skidproof_read(MSR_CORE_PERF_FIXED_CTR_CTRL);
}

/* The register by which another one counts since; 0: none does. */
static u32 changed_select(const struct skidproof_file *file)
{
	u64 value;
	u32 n;

	if (!file->bank)
		return 0;
	for (n = 0; n < FIXED_POSITION; n++) {
		if (!(file->counters & BIT_ULL(n)))
			continue;
		value = skidproof_read(skidproof_bank_msr(n, BANK_CFG_A));
		if (value & ARCH_PERFMON_EVENTSEL_ENABLE && value != file->selects[n])
			return skidproof_bank_msr(n, BANK_CFG_A);
	}
	value = skidproof_read(MSR_CORE_PERF_FIXED_CTR_CTRL);
	return value && value != file->fixed_select ? MSR_CORE_PERF_FIXED_CTR_CTRL : 0;
}

/*
 * Between two calls nothing counts, records or traces: user space runs then,
 * whose page tables need not have the debug store. What a call left on stands
 * aside until the next one, which finds it as it was. IA32_PEBS_ENABLE stays:
 * writing it would disarm counters that have overflowed.
 */
void skidproof_park(struct skidproof_file *file)
{
	u64 debugctl = skidproof_read(MSR_IA32_DEBUGCTLMSR);

	file->parked_ctrl = skidproof_read(MSR_CORE_PERF_GLOBAL_CTRL);
	file->parked_records = debugctl & DEBUGCTL_RECORDS;
	if (file->parked_ctrl)
		skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, 0);
	if (file->parked_records)
		skidproof_wrmsr(MSR_IA32_DEBUGCTLMSR, debugctl & ~(u64)DEBUGCTL_RECORDS);
	if (!file->intruder)
		remember_selects(file);
}

void skidproof_unpark(struct skidproof_file *file)
{
	file->intruder = changed_select(file);
	if (file->parked_records)
		skidproof_wrmsr(MSR_IA32_DEBUGCTLMSR,
				skidproof_read(MSR_IA32_DEBUGCTLMSR) | file->parked_records);
	if (file->parked_ctrl)
		skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, file->parked_ctrl);
	forget_parked(file);
}

/* --- Claiming */

/* No counter records any more; `armed` has room for a word of each position. */
void skidproof_disarm(const struct skidproof_file *file, u64 *armed)
{
	u32 n;

	if (!file->pebs_counters) {
		*armed = skidproof_read(PEBS_ENABLE);
		skidproof_wrmsr(PEBS_ENABLE, 0);
		return;
	}
	for (n = 0; n < BITS_PER_LONG; n++) {
		if (!(file->pebs_counters & BIT_ULL(n)))
			continue;
		armed[n] = skidproof_read(skidproof_bank_msr(n, BANK_CFG_C));
		if (armed[n] & CFG_C_PEBS)
			skidproof_wrmsr(skidproof_bank_msr(n, BANK_CFG_C), armed[n] & ~CFG_C_PEBS);
	}
}

/* As before that. */
void skidproof_rearm(const struct skidproof_file *file, const u64 *armed)
{
	u32 n;

	if (!file->pebs_counters) {
		if (*armed)
			skidproof_wrmsr(PEBS_ENABLE, *armed);
		return;
	}
	for (n = 0; n < BITS_PER_LONG; n++) {
		if (file->pebs_counters & BIT_ULL(n) && armed[n] & CFG_C_PEBS)
			skidproof_wrmsr(skidproof_bank_msr(n, BANK_CFG_C), armed[n]);
	}
}

/* Whatever counts, records or traces here. */
void skidproof_stop(const struct skidproof_file *file)
{
	u64 debugctl = skidproof_read(MSR_IA32_DEBUGCTLMSR), armed[BITS_PER_LONG];

	skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, 0);
	skidproof_disarm(file, armed);
	if (debugctl & DEBUGCTL_RECORDS)
		skidproof_wrmsr(MSR_IA32_DEBUGCTLMSR, debugctl & ~(u64)DEBUGCTL_RECORDS);
}

/* Counters stop first; everything goes back in reverse order; GLOBAL_CTRL last. */
static void restore(struct skidproof_file *file)
{
	u64 status;

	skidproof_stop(file);
	forget_parked(file);
	file->lvt_open = false;
	skidproof_lvt_write(file, file->lvt | APIC_LVT_MASKED);
	status = skidproof_read(MSR_CORE_PERF_GLOBAL_STATUS);
	if (status)
		skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_OVF_CTRL, status);
	while (file->saved_count) {
		const struct skidproof_saved *saved = &file->saved[--file->saved_count];

		skidproof_wrmsr(skidproof_full_width_alias(file, saved->msr), saved->value);
	}
	skidproof_lvt_write(file, file->lvt);
	skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, file->global_ctrl);
}

/* What IA32_DS_AREA or IA32_PEBS_BASE points into goes away: nothing records there any more. */
struct forget {
	struct skidproof_file *file;
	struct skidproof_block *block;
};

static void forget_here(void *data)
{
	struct forget *forget = data;
	u64 at, begin = forget->block->address;
	u64 size = (u64)forget->block->count * PAGE_SIZE;
	bool buffer = forget->block->use == SKIDPROOF_PEBS_BUFFER;
	u32 i, msr = MSR_IA32_DS_AREA;

	skidproof_stop(forget->file);
	forget_parked(forget->file);
	if (buffer) {
		msr = PEBS_BASE;
		begin = forget->block->physical;
	}
	at = skidproof_read(msr);
	if (at < begin || at - begin >= size)
		return;
	for (i = 0; i < forget->file->saved_count; i++) {
		if (forget->file->saved[i].msr == msr)
			skidproof_wrmsr(msr, forget->file->saved[i].value);
	}
}

void skidproof_forget_ds(struct skidproof_file *file, struct skidproof_block *block)
{
	struct forget forget = { file, block };

	/* Of a CPU that is gone all registers went back. */
	if (block->use == SKIDPROOF_DEBUG_STORE || block->use == SKIDPROOF_PEBS_BUFFER)
		skidproof_on_claimed_cpu(file, forget_here, &forget);
}

struct probe {
	struct skidproof_file *file;
	struct skidproof_claim *claim;
};

/* Who shares the LVT entry and a bit of the status, and whose guests' counters go into the same registers. */
static u32 somebody_else(const struct skidproof_file *file, u64 *detail)
{
	*detail = file->intruder;
	if (*detail)
		return SKIDPROOF_COUNTERS_HELD;
	*detail = native_read_cr4();
	if (*detail & X86_CR4_VMXE)
		return SKIDPROOF_VIRTUALIZES;
	*detail = file->traces ? skidproof_read(MSR_IA32_RTIT_CTL) : 0;
	return *detail & 1 ? SKIDPROOF_TRACES : SKIDPROOF_CLAIMED;
}

/* Before a run, on its CPU: whether somebody has come since the claim whom no reservation keeps away. */
bool skidproof_alone(const struct skidproof_file *file)
{
	u64 detail;

	return somebody_else(file, &detail) == SKIDPROOF_CLAIMED;
}

static bool refuse(struct skidproof_claim *claim, u32 refusal, u64 detail)
{
	claim->refusal = refusal;
	claim->detail = detail;
	return false;
}

/* CPUID.07H.01H:EAX[8]: leaf 23H. [Intel SDM Vol. 3, "Scalable Enumeration Architecture"] */
static void enumerate_bank(struct skidproof_file *file)
{
	const u32 leaf = 0x23, counters_leaf = BIT(1), pebs_leaf = BIT(5);
	u32 eax, ebx, ecx, edx, subleaves;

	file->counters = file->pebs_counters = 0;
	file->bank = false;
	file->intruder = 0;
	cpuid(0, &eax, &ebx, &ecx, &edx);
	if (eax < leaf)
		return;
	cpuid_count(7, 1, &eax, &ebx, &ecx, &edx);
	if (!(eax & BIT(8)))
		return;
	cpuid_count(leaf, 0, &subleaves, &ebx, &ecx, &edx);
	if (!(subleaves & counters_leaf))
		return;
	cpuid_count(leaf, 1, &eax, &ebx, &ecx, &edx);
	file->counters = eax | (u64)ebx << FIXED_POSITION;
	file->bank = file->perfmon_version >= 6;
	if (!(subleaves & pebs_leaf) || !file->bank)
		return;
	cpuid_count(leaf, 5, &eax, &ebx, &ecx, &edx);
	file->pebs_counters = eax | (u64)ecx << FIXED_POSITION;
}

/* The select of a counter of version 6 that counts for somebody; 0: none does. */
static u32 counting_select(const struct skidproof_file *file)
{
	u32 n;

	for (n = 0; n < FIXED_POSITION && file->bank; n++) {
		if (file->counters & BIT_ULL(n) && file->selects[n] & ARCH_PERFMON_EVENTSEL_ENABLE)
			return skidproof_bank_msr(n, BANK_CFG_A);
	}
	return file->bank && file->fixed_select ? MSR_CORE_PERF_FIXED_CTR_CTRL : 0;
}

/* Writes what a counter can hold and reads it back: a hypervisor may only pretend. */
static bool counter_lives(struct skidproof_claim *claim)
{
	static const u32 patterns[] = { 0x2a5a5a5a, 0x15a5a5a5 };
	u64 select, before, read;
	bool lives = true;
	unsigned int i;

	if (skidproof_rdmsr(MSR_ARCH_PERFMON_EVENTSEL0, &select) ||
	    skidproof_rdmsr(MSR_ARCH_PERFMON_PERFCTR0, &before))
		return refuse(claim, SKIDPROOF_NO_MSR, MSR_ARCH_PERFMON_PERFCTR0);
	skidproof_wrmsr(MSR_ARCH_PERFMON_EVENTSEL0, 0);
	for (i = 0; i < ARRAY_SIZE(patterns) && lives; i++) {
		if (skidproof_wrmsr(MSR_ARCH_PERFMON_PERFCTR0, patterns[i]) ||
		    skidproof_rdmsr(MSR_ARCH_PERFMON_PERFCTR0, &read) || read != patterns[i])
			lives = refuse(claim, SKIDPROOF_COUNTER_DEAD, read);
	}
	skidproof_wrmsr(MSR_ARCH_PERFMON_PERFCTR0, before);
	skidproof_wrmsr(MSR_ARCH_PERFMON_EVENTSEL0, select);
	return lives;
}

static void probe_here(void *data)
{
	struct probe *probe = data;
	struct skidproof_claim *claim = probe->claim;
	struct skidproof_file *file = probe->file;
	u64 misc, value;
	u32 eax, ebx, ecx, edx, refusal;

	cpuid(0, &eax, &ebx, &ecx, &edx);
	if (eax >= 0x1a) {
		cpuid_count(7, 0, &eax, &ebx, &ecx, &edx);
		if (edx & BIT(15))
			claim->core_type = cpuid_eax(0x1a) >> 24;
	}
	cpuid(1, &eax, &ebx, &ecx, &edx);
	if (!(edx & BIT(21))) {
		refuse(claim, SKIDPROOF_NO_DEBUG_STORE, edx);
		return;
	}
	if (!(ecx & BIT(2))) {
		refuse(claim, SKIDPROOF_NO_DTES64, ecx);
		return;
	}
	if (!(ecx & BIT(15))) {
		refuse(claim, SKIDPROOF_NO_PDCM, ecx);
		return;
	}
	cpuid(0xa, &eax, &ebx, &ecx, &edx);
	file->perfmon_version = eax & 0xff;
	file->gp_counters = min_t(u32, eax >> 8 & 0xff, 8);
	file->gp_width = eax >> 16 & 0xff;
	file->fixed_counters = min_t(u32, edx & 0x1f, 8);
	file->fixed_width = edx >> 5 & 0xff;
	/* Version 2 brought the global registers. */
	if (file->perfmon_version < 2 || !file->gp_counters) {
		refuse(claim, SKIDPROOF_NO_PERFMON, eax);
		return;
	}
	enumerate_bank(file);
	/* perf reserves nothing of those: what it counts must be seen. */
	remember_selects(file);
	value = counting_select(file);
	if (value) {
		refuse(claim, SKIDPROOF_COUNTERS_HELD, value);
		return;
	}
	file->traces = !skidproof_rdmsr(MSR_IA32_RTIT_CTL, &value);
	refusal = somebody_else(file, &value);
	if (refusal) {
		refuse(claim, refusal, value);
		return;
	}
	if (skidproof_rdmsr(MSR_IA32_MISC_ENABLE, &misc)) {
		refuse(claim, SKIDPROOF_NO_MSR, MSR_IA32_MISC_ENABLE);
		return;
	}
	if (!(misc & MSR_IA32_MISC_ENABLE_EMON)) {
		refuse(claim, SKIDPROOF_PERFMON_OFF, misc);
		return;
	}
	if (misc & MSR_IA32_MISC_ENABLE_PEBS_UNAVAIL) {
		refuse(claim, SKIDPROOF_PEBS_OFF, misc);
		return;
	}
	if (skidproof_rdmsr(MSR_IA32_PERF_CAPABILITIES, &file->capabilities)) {
		refuse(claim, SKIDPROOF_NO_MSR, MSR_IA32_PERF_CAPABILITIES);
		return;
	}
	if (skidproof_rdmsr(MSR_CORE_PERF_GLOBAL_CTRL, &file->global_ctrl)) {
		refuse(claim, SKIDPROOF_NO_MSR, MSR_CORE_PERF_GLOBAL_CTRL);
		return;
	}
	if (skidproof_rdmsr(MSR_IA32_DS_AREA, &value)) {
		refuse(claim, SKIDPROOF_NO_MSR, MSR_IA32_DS_AREA);
		return;
	}
	skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, 0);
	save_first(file);
	if (!counter_lives(claim)) {
		skidproof_wrmsr(MSR_CORE_PERF_GLOBAL_CTRL, file->global_ctrl);
		return;
	}
	file->x2apic = skidproof_read(MSR_IA32_APICBASE) & BIT_ULL(10);
	file->lvt = skidproof_lvt_read(file) & ~APIC_SEND_PENDING;
	file->smi_count = !skidproof_rdmsr(MSR_SMI_COUNT, &value);
	file->mc_banks = skidproof_read(MSR_IA32_MCG_CAP) & 0xff;
	if (file->mc_banks > 32)
		file->mc_banks = 32;
	/* MSR_PPIN_CTL: bit 1 enables, bit 0 locks. */
	if (!skidproof_rdmsr(MSR_PPIN_CTL, &value) && (value & 2))
		claim->ppin = skidproof_read(MSR_PPIN);
	claim->microcode = skidproof_read(MSR_IA32_UCODE_REV) >> 32;
	claim->tsc_khz = tsc_khz;
	claim->limit_us = 1000ULL * skidproof_limit_ms;
	claim->refusal = SKIDPROOF_CLAIMED;
}

/* perf and the NMI watchdog take them in the same way, so neither holds one while we do. */
static int reserve(u32 counters, u64 *held)
{
	u32 n;

	for (n = 0; n < counters; n++) {
		if (!reserve_perfctr_nmi(MSR_ARCH_PERFMON_PERFCTR0 + n)) {
			*held = MSR_ARCH_PERFMON_PERFCTR0 + n;
			break;
		}
		if (!reserve_evntsel_nmi(MSR_ARCH_PERFMON_EVENTSEL0 + n)) {
			release_perfctr_nmi(MSR_ARCH_PERFMON_PERFCTR0 + n);
			*held = MSR_ARCH_PERFMON_EVENTSEL0 + n;
			break;
		}
	}
	if (n == counters) {
		reserved_counters = counters;
		return 0;
	}
	while (n-- > 0) {
		release_perfctr_nmi(MSR_ARCH_PERFMON_PERFCTR0 + n);
		release_evntsel_nmi(MSR_ARCH_PERFMON_EVENTSEL0 + n);
	}
	return -EBUSY;
}

static void unreserve(void)
{
	while (reserved_counters > 0) {
		reserved_counters--;
		release_perfctr_nmi(MSR_ARCH_PERFMON_PERFCTR0 + reserved_counters);
		release_evntsel_nmi(MSR_ARCH_PERFMON_EVENTSEL0 + reserved_counters);
	}
}

static int error_of(u32 refusal)
{
	switch (refusal) {
	case SKIDPROOF_CLAIMED:
		return 0;
	case SKIDPROOF_LOCKED_DOWN:
	case SKIDPROOF_NO_RAW_IO:
		return -EPERM;
	case SKIDPROOF_COUNTERS_HELD:
	case SKIDPROOF_CPU_OWNED:
	case SKIDPROOF_FILE_OWNS:
	case SKIDPROOF_SUSPENDING:
	case SKIDPROOF_TRACES:
	case SKIDPROOF_VIRTUALIZES:
		return -EBUSY;
	case SKIDPROOF_CPU_OFFLINE:
		return -ENXIO;
	default:
		return -EOPNOTSUPP;
	}
}

static void nothing(void *data)
{
}

/* Runs on other CPUs that this one watches are at the end of their turns, and look for another one. */
static void await_turns(unsigned int cpu)
{
	unsigned int other;

	for_each_online_cpu(other) {
		if (other != cpu && per_cpu(owner, other))
			on_cpu(per_cpu(owner, other), nothing, NULL);
	}
}

/* The reason is in claim->refusal, and -EBUSY and its like only say of what kind it is. */
int skidproof_claim_cpu(struct skidproof_file *file, struct skidproof_claim *claim)
{
	struct probe probe = { file, claim };
	bool first;

	claim->refusal = SKIDPROOF_CLAIMED;
	if (!capable(CAP_SYS_RAWIO) || !capable(CAP_SYS_ADMIN))
		refuse(claim, SKIDPROOF_NO_RAW_IO, 0);
	else if (security_locked_down(LOCKDOWN_MSR))
		refuse(claim, SKIDPROOF_LOCKED_DOWN, 0);
	else if (file->cpu >= 0)
		refuse(claim, SKIDPROOF_FILE_OWNS, file->cpu);
	else if (boot_cpu_data.x86_vendor != X86_VENDOR_INTEL)
		refuse(claim, SKIDPROOF_NOT_INTEL, 0);
	if (claim->refusal)
		return error_of(claim->refusal);

	cpus_read_lock();
	mutex_lock(&claims);
	first = !claimed;
	if (suspending)
		refuse(claim, SKIDPROOF_SUSPENDING, 0);
	else if (claim->cpu >= nr_cpu_ids || !cpu_online(claim->cpu))
		refuse(claim, SKIDPROOF_CPU_OFFLINE, 0);
	else if (per_cpu(owner, claim->cpu))
		refuse(claim, SKIDPROOF_CPU_OWNED, per_cpu(owner, claim->cpu)->owner);
	else if (first && reserve(min_t(u32, cpuid_eax(0xa) >> 8 & 0xff, 8), &claim->detail))
		claim->refusal = SKIDPROOF_COUNTERS_HELD;
	if (!claim->refusal) {
		file->cpu = claim->cpu;
		file->lost = false;
		file->saved_count = 0;
		file->core_cycles = file->reference_cycles = 0;
		claim->refusal = SKIDPROOF_CPU_OFFLINE;
		on_cpu(file, probe_here, &probe);
		if (claim->refusal) {
			file->cpu = -1;
			if (first)
				unreserve();
		} else {
			file->owner = task_tgid_nr(current);
			per_cpu(owner, claim->cpu) = file;
			claimed++;
			await_turns(claim->cpu);
			skidproof_watch_begin(file);
			claim->flags = (skidproof_dry_run ? SKIDPROOF_DRY_RUN : 0) |
				       (skidproof_watched(file) ? SKIDPROOF_WATCHED : 0);
		}
	}
	mutex_unlock(&claims);
	cpus_read_unlock();
	return error_of(claim->refusal);
}

static void restore_here(void *data)
{
	restore(data);
}

/* What is called on that CPU from now on does nothing there. */
static void lose_here(void *data)
{
	struct skidproof_file *file = data;

	restore(file);
	WRITE_ONCE(file->lost, true);
}

/* Under `claims`: the registers are back. */
static void disown(unsigned int cpu)
{
	per_cpu(owner, cpu) = NULL;
	if (!--claimed)
		unreserve();
}

/* Idempotent. Called under file->lock, or when the file has no users any more. */
void skidproof_release_cpu(struct skidproof_file *file)
{
	if (file->cpu < 0)
		return;
	skidproof_watch_end(file);
	cpus_read_lock();
	mutex_lock(&claims);
	if (!file->lost) {
		on_cpu(file, restore_here, file);
		disown(file->cpu);
	}
	file->cpu = -1;
	file->lost = false;
	mutex_unlock(&claims);
	cpus_read_unlock();
}

/* A line for each owned CPU: its number, the process that claimed it, whether a run goes on. */
ssize_t skidproof_show_owners(char *buffer)
{
	unsigned int cpu;
	int bytes = 0;

	mutex_lock(&claims);
	for_each_possible_cpu(cpu) {
		const struct skidproof_file *file = per_cpu(owner, cpu);

		if (file)
			bytes += sysfs_emit_at(buffer, bytes, "%u %d %s\n", cpu, file->owner,
					       READ_ONCE(file->running) ? "running" : "claimed");
	}
	mutex_unlock(&claims);
	return bytes;
}

/* --- CPUs that go, and the computer that goes to sleep */

static enum cpuhp_state hotplug_state;

/* On the CPU itself, while no ioctl can be in a batch or a run. */
static int cpu_goes(unsigned int cpu)
{
	struct skidproof_file *file;

	mutex_lock(&claims);
	file = per_cpu(owner, cpu);
	if (file) {
		lose_here(file);
		disown(cpu);
	}
	mutex_unlock(&claims);
	return 0;
}

/* What an interrupt left that came when its program had gone: mask bit set, nobody's. */
static int late_nmi(unsigned int type, struct pt_regs *regs)
{
	struct skidproof_file *file = raw_cpu_read(owner);
	u32 lvt;

	if (skidproof_late_nmi(regs->ip))
		return NMI_HANDLED;
	/* Of another CPU, which saw the time run out just before the program ended. */
	if (file && xchg(&file->called, false))
		return NMI_HANDLED;
	if (!file || !file->lvt_open)
		return NMI_DONE;
	lvt = skidproof_lvt_read(file);
	if (!(lvt & APIC_LVT_MASKED))
		return NMI_DONE;
	if (file->unmask_late)
		skidproof_lvt_write(file, lvt & ~APIC_LVT_MASKED);
	else
		file->lvt_open = false;
	return NMI_HANDLED;
}

static int power(struct notifier_block *block, unsigned long event, void *data)
{
	int result = NOTIFY_DONE;

	mutex_lock(&claims);
	switch (event) {
	case PM_SUSPEND_PREPARE:
	case PM_HIBERNATION_PREPARE:
	case PM_RESTORE_PREPARE:
		if (claimed)
			result = notifier_from_errno(-EBUSY);
		else
			suspending = true;
		break;
	case PM_POST_SUSPEND:
	case PM_POST_HIBERNATION:
	case PM_POST_RESTORE:
		suspending = false;
		break;
	}
	mutex_unlock(&claims);
	return result;
}

static struct notifier_block power_block = { .notifier_call = power };

/* The next kernel, by kexec as well, is to find the counters off and the debug store gone. */
static int reboots(struct notifier_block *block, unsigned long event, void *data)
{
	unsigned int cpu;

	cpus_read_lock();
	mutex_lock(&claims);
	suspending = true;
	for_each_online_cpu(cpu) {
		if (!per_cpu(owner, cpu))
			continue;
		on_cpu(per_cpu(owner, cpu), lose_here, per_cpu(owner, cpu));
		disown(cpu);
	}
	mutex_unlock(&claims);
	cpus_read_unlock();
	return NOTIFY_DONE;
}

static struct notifier_block reboot_block = { .notifier_call = reboots };

/* The same of a kernel that dies, on the CPU that it dies on: nothing else can be reached. */
static int panics(struct notifier_block *block, unsigned long event, void *data)
{
	if (raw_cpu_read(owner))
		skidproof_stop(raw_cpu_read(owner));
	return NOTIFY_DONE;
}

static struct notifier_block panic_block = { .notifier_call = panics };

int skidproof_cpu_init(void)
{
	int state, error;

	if (!skidproof_limit_ms || skidproof_limit_ms > 1000) {
		pr_err("skidproof: limit_ms=%u is not from 1 to 1000\n", skidproof_limit_ms);
		return -EINVAL;
	}
	state = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "skidproof:online", NULL, cpu_goes);
	if (state < 0)
		return state;
	hotplug_state = state;
	error = register_nmi_handler(NMI_LOCAL, late_nmi, 0, "skidproof");
	if (error)
		goto no_nmi;
	error = register_pm_notifier(&power_block);
	if (error)
		goto no_power;
	error = register_reboot_notifier(&reboot_block);
	if (error)
		goto no_reboot;
	atomic_notifier_chain_register(&panic_notifier_list, &panic_block);
	return 0;

no_reboot:
	unregister_pm_notifier(&power_block);

no_power:
	unregister_nmi_handler(NMI_LOCAL, "skidproof");
no_nmi:
	cpuhp_remove_state_nocalls(hotplug_state);
	return error;
}

void skidproof_cpu_exit(void)
{
	atomic_notifier_chain_unregister(&panic_notifier_list, &panic_block);
	unregister_reboot_notifier(&reboot_block);
	unregister_pm_notifier(&power_block);
	unregister_nmi_handler(NMI_LOCAL, "skidproof");
	cpuhp_remove_state_nocalls(hotplug_state);
}
