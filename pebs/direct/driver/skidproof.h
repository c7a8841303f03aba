/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of the driver share. */
#ifndef SKIDPROOF_PEBS_DIRECT_DRIVER_SKIDPROOF_H_
#define SKIDPROOF_PEBS_DIRECT_DRIVER_SKIDPROOF_H_

/* Bits of IA32_DEBUGCTL that record branches: LBR, TR, BTS, BTINT. */
#define DEBUGCTL_RECORDS	0x1c1

/* The stubs of exceptions. */
#define SKIDPROOF_FAULT_ENTRY_BYTES 16
#define SKIDPROOF_FAULT_ENTRIES 32

#ifndef __ASSEMBLER__

#include <linux/cpumask.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/types.h>
#include <linux/version.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
#include <asm/cpuid/api.h>
#endif

#include "skidproof_uapi.h"

#define PEBS_ENABLE 0x3f1
#define PEBS_DATA_CFG 0x3f2
/* Architectural PEBS. */
#define PEBS_BASE 0x3f4
#define PEBS_BASE_SIZE 0x1fULL		/* 4 KiB << SIZE */
#define PEBS_INDEX 0x3f5
#define PEBS_INDEX_WR (0x7fffffULL << 4)
#define PEBS_THRESHOLD BIT_ULL(54)	/* of the status */
#define CFG_C_PEBS BIT_ULL(63)
#define CFG_C_ALLOW BIT_ULL(35)		/* other counters' records may have it */
/* Registers of counters, from performance monitoring version 6 on: four for each. */
#define GP_BANK 0x1900
#define FIXED_BANK 0x1980
#define BANK_STRIDE 4
enum { BANK_CTR, BANK_CFG_A, BANK_CFG_B, BANK_CFG_C };
#define FIXED_POSITION 32		/* of the first fixed counter, in all words with a bit for each */
#define DEBUGCTL_TR_BTS (BIT_ULL(6) | BIT_ULL(7))

#define SAVED_MSRS 320

/* What a program finds when it is entered, and what it leaves. */
struct skidproof_entry {
	u64 kernel_sp;
	u64 stack;
	u64 iterations;
	u64 data;
	u64 ctrl;
	u64 debugctl;
	u64 result;
	struct skidproof_frame *frame;
	u64 traced;
	u64 user;	/* at ring 3 … */
	u64 rip;	/* … which begins there */
};

/* Those that no stub uses for itself. */
struct skidproof_registers {
	u64 r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx;
};

/* What the NMI stub puts on its stack; `linux_word` is what Linux takes for its own there. */
struct skidproof_frame {
	u64 gs_base;
	struct skidproof_registers registers;
	u64 debugctl_low, debugctl_high;
	u64 ctrl;
	u64 rdx, rcx, linux_word, rax;
	u64 rip, cs, rflags, rsp, ss;
};

/* What the fault stubs put on theirs. */
struct skidproof_fault {
	struct skidproof_registers registers;
	u64 rdx, rcx, rax;
	u64 vector;
	u64 error;
	u64 rip, cs, rflags, rsp, ss;
};

struct skidproof_block {
	struct list_head list;
	struct page **pages;
	u64 address;		/* of programs; of the debug store the kernel's */
	void *view;		/* the kernel's, of the debug store */
	u64 physical;		/* of a PEBS buffer */
	unsigned long count;	/* pages */
	u64 offset;
	u32 use;
	bool internal;		/* the driver's own: nobody may see or free it */
};

struct skidproof_saved {
	u32 msr;
	u64 value;
};

struct skidproof_file {
	struct rcu_head rcu;		/* an NMI handler may still look at it */
	struct mutex lock;		/* one ioctl at a time */
	struct mutex blocks_lock;	/* the list; taken under mmap_lock */
	struct list_head blocks;
	unsigned long pages;
	u64 next_offset;
	int cpu;			/* -1: none */
	bool lost;			/* the CPU went offline under us */
	bool running;
	pid_t owner;

	/* Facts of the CPU. */
	u64 capabilities;
	u32 gp_counters, fixed_counters, perfmon_version; /* with registers of before version 6 */
	u64 counters;			/* all there are */
	u64 pebs_counters;		/* those with architectural PEBS */
	bool bank;			/* they have registers of version 6 */
	u32 gp_width, fixed_width;
	u32 mc_banks;
	bool smi_count;
	bool traces;			/* Intel PT is there */
	bool x2apic;

	/* What counters of cycles count in the limit; 0: not looked at, or nothing. */
	u64 core_cycles, reference_cycles;

	/* Given back on release, in reverse order. */
	struct skidproof_saved saved[SAVED_MSRS];
	u32 saved_count;
	u64 global_ctrl;		/* as found */
	u32 lvt;			/* as found */
	u64 parked_ctrl, parked_records;	/* GLOBAL_CTRL and bits of DEBUGCTL, between calls */
	/* What the counters of version 6 count, as the last call left it; of the fixed ones in one word. */
	u64 selects[FIXED_POSITION], fixed_select;
	u32 intruder;			/* by which register somebody else counts since; 0: nobody does */

	struct skidproof_block *stack;
	struct skidproof_block *landing;	/* where programs at ring 3 return to */
	u64 *root;			/* of the page tables under which programs run */
	struct list_head tables;	/* below it */
	bool blocks_changed;		/* since it was built */
	bool lvt_open;			/* left unmasked: a mask bit says that a PMI came */
	bool unmask_late;		/* what the handler of a late PMI does then */

	/* Another CPU's timer, where it is, when it is to call (TSC; 0: never), and that it did. */
	struct hrtimer watch;
	int watcher;
	u64 slice_end;
	bool called;
};

/* What a program's page tables stand in for. */
struct skidproof_space {
	u64 cr3, cr4;
};

/* cpu.c */
extern unsigned int skidproof_limit_ms;
extern bool skidproof_dry_run;
u64 skidproof_harmless(u32 msr, u64 value);
int skidproof_check_owner(const struct skidproof_file *file);
int skidproof_on_claimed_cpu(struct skidproof_file *file, void (*function)(void *), void *data);
int skidproof_claim_cpu(struct skidproof_file *file, struct skidproof_claim *claim);
void skidproof_release_cpu(struct skidproof_file *file);
bool skidproof_owned(unsigned int cpu);
ssize_t skidproof_show_owners(char *buffer);
int skidproof_msr_listed(const struct skidproof_file *file, const struct skidproof_msr *access);
int skidproof_msr_save(struct skidproof_file *file, u32 msr);
int skidproof_msr_execute(struct skidproof_file *file, struct skidproof_msr *access);
int skidproof_msr_access(struct skidproof_file *file, struct skidproof_msr *access);
bool skidproof_stores_inside(struct skidproof_file *file, u64 ds_area, u64 pebs_base, bool pebs,
			     bool bts);
u32 skidproof_full_width_alias(const struct skidproof_file *file, u32 msr);
u64 skidproof_sampling(const struct skidproof_file *file);
int skidproof_cpu_init(void);
void skidproof_cpu_exit(void);
bool skidproof_alone(const struct skidproof_file *file);
void skidproof_stop(const struct skidproof_file *file);
void skidproof_disarm(const struct skidproof_file *file, u64 *armed);
void skidproof_rearm(const struct skidproof_file *file, const u64 *armed);
void skidproof_park(struct skidproof_file *file);
void skidproof_unpark(struct skidproof_file *file);
void skidproof_forget_ds(struct skidproof_file *file, struct skidproof_block *block);
u32 skidproof_lvt_read(const struct skidproof_file *file);
void skidproof_lvt_write(const struct skidproof_file *file, u32 value);

/* guard.c */
void skidproof_watch_begin(struct skidproof_file *file);
void skidproof_watch_end(struct skidproof_file *file);
void skidproof_watch_check(struct skidproof_file *file);
bool skidproof_watched(const struct skidproof_file *file);

/* memory.c */
int skidproof_memory_init(void);
struct skidproof_block *skidproof_block_new(struct skidproof_file *file, u64 bytes, u32 use);
void skidproof_block_free(struct skidproof_file *file, struct skidproof_block *block);
struct skidproof_block *skidproof_block_at(struct skidproof_file *file, u64 address, u64 bytes);
void skidproof_blocks_free(struct skidproof_file *file);
int skidproof_mmap(struct file *filp, struct vm_area_struct *vma);

/* space.c */
int skidproof_space_build(struct skidproof_file *file);
void skidproof_space_free(struct skidproof_file *file);
void skidproof_space_enter(const struct skidproof_file *file, struct skidproof_space *found,
			   bool user, bool user_rdpmc);
void skidproof_space_leave(const struct skidproof_space *found);

/* run.c */
int skidproof_do_run(struct skidproof_file *file, struct skidproof_run *run);
int skidproof_user_rdpmc(struct skidproof_file *file, struct skidproof_rdpmc *read);
int skidproof_landing_new(struct skidproof_file *file);

/* traps.c */
int skidproof_traps_init(void);
void skidproof_traps_exit(void);
int skidproof_nmi(struct skidproof_frame *frame);
bool skidproof_late_nmi(u64 ip);
int skidproof_fault(struct skidproof_fault *fault);

/* enter.S */
void skidproof_enter(struct skidproof_entry *entry);
void skidproof_resume(struct skidproof_entry *entry);
extern char skidproof_window_begin[], skidproof_window_end[];
extern char skidproof_landing[], skidproof_landing_end[];
extern char skidproof_landing_traced[], skidproof_landing_traced_end[];
extern char skidproof_ud_entry[], skidproof_ud_stopped[];
extern char skidproof_left[], skidproof_left_end[], skidproof_nmi_entry[];
extern char skidproof_fault_entries[], skidproof_stubs_end[];
int skidproof_rdmsr(u32 msr, u64 *value);
int skidproof_wrmsr(u32 msr, u64 value);

/* By a counter's position in words that have a bit for each: one of its registers of version 6. */
static inline u32 skidproof_bank_msr(u32 position, u32 which)
{
	return which + (position < FIXED_POSITION ? GP_BANK + BANK_STRIDE * position :
			FIXED_BANK + BANK_STRIDE * (position - FIXED_POSITION));
}

/* 0 where it raises #GP. */
static inline u64 skidproof_read(u32 msr)
{
	u64 value = 0;

	return skidproof_rdmsr(msr, &value) ? 0 : value;
}

#endif /* __ASSEMBLER__ */
#endif /* SKIDPROOF_PEBS_DIRECT_DRIVER_SKIDPROOF_H_ */
