/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * What /dev/skidproof understands. Every structure has a fixed size; reserved
 * fields must be zero, so that they can get a meaning later.
 *
 * An open file owns at most one logical processor, and a processor has at most
 * one owner. Code and data stand where programs find them, at ring 0 and ring 3
 * alike; the DS area and its buffers stand in the kernel's half of memory, and a
 * buffer of architectural PEBS in physical memory alone.
 */
#ifndef SKIDPROOF_PEBS_DIRECT_DRIVER_SKIDPROOF_UAPI_H_
#define SKIDPROOF_PEBS_DIRECT_DRIVER_SKIDPROOF_UAPI_H_

#include <linux/ioctl.h>
#include <linux/types.h>

#define SKIDPROOF_DEVICE "/dev/skidproof"
#define SKIDPROOF_ABI 4

#define SKIDPROOF_MAX_MSRS 512
#define SKIDPROOF_MAX_PMIS 65536
#define SKIDPROOF_MAX_BLOCK_BYTES (256ULL << 20)

/* Why a processor could not be claimed; `detail` says more. */
enum skidproof_refusal {
	SKIDPROOF_CLAIMED = 0,
	SKIDPROOF_NOT_INTEL = 1,
	SKIDPROOF_NO_PERFMON = 2,	/* detail: CPUID.0AH:EAX */
	SKIDPROOF_NO_DEBUG_STORE = 3,	/* detail: CPUID.01H:EDX */
	SKIDPROOF_NO_DTES64 = 4,	/* detail: CPUID.01H:ECX */
	SKIDPROOF_NO_PDCM = 5,		/* detail: CPUID.01H:ECX */
	SKIDPROOF_PERFMON_OFF = 6,	/* detail: IA32_MISC_ENABLE */
	SKIDPROOF_PEBS_OFF = 7,		/* detail: IA32_MISC_ENABLE */
	SKIDPROOF_COUNTER_DEAD = 8,	/* detail: what was read back */
	SKIDPROOF_COUNTERS_HELD = 9,	/* detail: MSR that another one holds */
	SKIDPROOF_CPU_OFFLINE = 10,
	SKIDPROOF_CPU_OWNED = 11,	/* detail: process id of its owner */
	SKIDPROOF_FILE_OWNS = 12,	/* detail: the CPU of this file */
	SKIDPROOF_LOCKED_DOWN = 13,
	SKIDPROOF_NO_RAW_IO = 14,
	SKIDPROOF_SUSPENDING = 15,
	SKIDPROOF_NO_MSR = 16,		/* detail: MSR that does not answer */
	SKIDPROOF_TRACES = 17,		/* Intel PT; detail: IA32_RTIT_CTL */
	SKIDPROOF_VIRTUALIZES = 18,	/* KVM or its like; detail: CR4 */
};

/* Of a claim. The driver was loaded with dry_run=1: what would start a counter or a trace is left out. */
#define SKIDPROOF_DRY_RUN	(1U << 0)
/* Another CPU bounds the time with interrupts off. */
#define SKIDPROOF_WATCHED	(1U << 1)

struct skidproof_claim {
	__u32 abi;		/* in: SKIDPROOF_ABI */
	__u32 cpu;		/* in */
	__u32 refusal;		/* out: enum skidproof_refusal */
	__u32 core_type;	/* out: CPUID.1AH:EAX[31:24]; 0 where not hybrid */
	__u64 detail;		/* out */
	__u64 ppin;		/* out: 0 where not readable */
	__u64 tsc_khz;		/* out */
	__u64 limit_us;		/* out: longest time with interrupts off */
	__u32 microcode;	/* out */
	__u32 flags;		/* out: SKIDPROOF_DRY_RUN, SKIDPROOF_WATCHED */
};

/* One access. A read leaves `value`, a write takes it. */
struct skidproof_msr {
	__u32 msr;
	__u16 write;		/* 0 or 1 */
	__u16 fault;		/* out: 1 for #GP */
	__u64 value;
};

/* Stops at the first write that faults; reads go on. */
struct skidproof_msrs {
	__u64 list;		/* struct skidproof_msr[count] */
	__u32 count;
	__u32 done;		/* out: how many were executed */
};

enum skidproof_use {
	SKIDPROOF_DATA = 0,
	SKIDPROOF_CODE = 1,		/* executable and read-only for programs */
	SKIDPROOF_DEBUG_STORE = 2,	/* DS area and its buffers */
	SKIDPROOF_PEBS_BUFFER = 3,	/* of architectural PEBS: one piece of physical memory */
};

struct skidproof_alloc {
	__u64 bytes;		/* in; out: whole pages */
	__u64 address;		/* out */
	__u64 offset;		/* out: for mmap */
	__u64 physical;		/* out: where a PEBS buffer stands; else 0 */
	__u32 use;
	__u32 reserved;
};

struct skidproof_free {
	__u64 address;
};

#define SKIDPROOF_PMI_UNMASK		(1U << 0)
#define SKIDPROOF_PMI_CLEAR_STATUS	(1U << 1)
#define SKIDPROOF_PMI_REWIND_PEBS	(1U << 2)
#define SKIDPROOF_PMI_REWIND_BTS	(1U << 3)
#define SKIDPROOF_PMI_RESTORE_CTRL	(1U << 4)
#define SKIDPROOF_PMI_ALL		((1U << 5) - 1)

struct skidproof_pmi {
	__u64 tsc;
	__u64 ip;
	__u64 global_status;
	__u64 global_ctrl;
	__u64 pebs_index;
	__u64 bts_index;
};

enum skidproof_outcome {
	SKIDPROOF_RETURNED = 0,
	SKIDPROOF_FAULTED = 1,		/* fault_* say where */
	SKIDPROOF_TIMED_OUT = 2,	/* fault_ip: where it was */
	SKIDPROOF_MSR_FAULT = 3,	/* fault_msr: a write or read of the plan */
	SKIDPROOF_INTERRUPTED = 4,	/* by a signal */
};

struct skidproof_run {
	__u64 entry;
	__u64 iterations;	/* RDI */
	__u64 data;		/* RSI */
	/* MSR accesses in order: writes before, writes after, reads. */
	__u64 enable;		/* struct skidproof_msr[enable_count] */
	__u64 disable;
	__u64 read;
	__u64 acknowledge;	/* writes of the interrupt handler */
	__u32 enable_count;
	__u32 disable_count;
	__u32 read_count;
	__u32 acknowledge_count;
	__u64 log;		/* struct skidproof_pmi[log_capacity] */
	__u32 log_capacity;
	__u32 pmi_flags;
	__u32 status_msr;
	__u32 field_bytes;	/* of the four below: 4 or 8 */
	__u64 pebs_index_address;	/* 0: none */
	__u64 pebs_base_address;
	__u64 bts_index_address;
	__u64 bts_base_address;
	/* Architectural PEBS: what the log adds to IA32_PEBS_INDEX's WR; 0: the field above. */
	__u64 pebs_buffer;
	__u64 keep_status;	/* bits of the status that stay where the counter samples */
	__u32 deadline_ms;
	__u32 ring;		/* 0 or 3 */

	/* out */
	__u32 outcome;
	__u32 pmis;
	__u64 pmis_dropped;
	__u64 result;		/* RAX */
	__u64 tsc;
	__u64 slices;		/* times that interrupts were let in meanwhile */
	__u64 smis;
	__u64 machine_checks;	/* one within the program ended it */
	__u64 foreign_nmis;
	__u64 fault_ip;
	__u64 fault_address;
	__u32 fault_vector;
	__u32 fault_error;
	__u32 fault_msr;
	/* What bounds the run: 40000000H + n: fixed counter n; n: IA32_PMCn; ~0: nothing. */
	__u32 guard;
	__u64 fault_value;
};

struct skidproof_rdpmc {
	__u32 index;
	__u32 fault;		/* out: 1 for #GP */
	__u64 value;		/* out */
	__u32 cr4_pce;		/* in: 0 or 1 */
	__u32 ring;		/* in: 0 or 3 */
};

#define SKIDPROOF_IOC_MAGIC 0xB7
#define SKIDPROOF_IOC_ABI	_IOR(SKIDPROOF_IOC_MAGIC, 0, __u32)
#define SKIDPROOF_IOC_CLAIM	_IOWR(SKIDPROOF_IOC_MAGIC, 1, struct skidproof_claim)
#define SKIDPROOF_IOC_RELEASE	_IO(SKIDPROOF_IOC_MAGIC, 2)
#define SKIDPROOF_IOC_MSRS	_IOWR(SKIDPROOF_IOC_MAGIC, 3, struct skidproof_msrs)
#define SKIDPROOF_IOC_ALLOC	_IOWR(SKIDPROOF_IOC_MAGIC, 4, struct skidproof_alloc)
#define SKIDPROOF_IOC_FREE	_IOW(SKIDPROOF_IOC_MAGIC, 5, struct skidproof_free)
#define SKIDPROOF_IOC_RUN	_IOWR(SKIDPROOF_IOC_MAGIC, 6, struct skidproof_run)
#define SKIDPROOF_IOC_RDPMC	_IOWR(SKIDPROOF_IOC_MAGIC, 7, struct skidproof_rdpmc)

#endif /* SKIDPROOF_PEBS_DIRECT_DRIVER_SKIDPROOF_UAPI_H_ */
