// SPDX-License-Identifier: GPL-2.0
/*
 * The computer restarts while a CPU is claimed: restart HOW WHEN.
 *   HOW   kexec, reboot, panic, or crash: a panic with a kernel that was loaded
 *         for it (boot with crashkernel=64M)
 *   WHEN  running: a program without an end that samples and traces is amid its
 *         run; claimed: the same registers were left on by a call
 * The next kernel is one of thirty bytes: it asks the virtual lab what its CPUs
 * have on and ends the guest with that as its status, 0 where nothing is. Where
 * the firmware comes next, ci/lab says the same. Never returns 0 itself.
 */
#include <linux/kexec.h>
#include <linux/reboot.h>
#include <stddef.h>
#include <sys/reboot.h>
#include <sys/syscall.h>

#include "lab.h"

#define DS_BYTES 16384
#define PERIOD ((1ULL << 48) - 1000)

struct debug_store {
	unsigned long long bts_base, bts_index, bts_maximum, bts_threshold;
	unsigned long long pebs_base, pebs_index, pebs_maximum, pebs_threshold, reset[4];
};

/*
 * MOV EAX, 40000400H; MOV ECX, 2; CPUID; MOV EDI, EAX; the same with ECX 3;
 * OR EAX, EDI; AND EAX, 0EH; OUT 0F4H, AL; HLT
 */
static const unsigned char next_kernel[] = {
	0xb8, 0x00, 0x04, 0x00, 0x40, 0xb9, 2, 0, 0, 0, 0x0f, 0xa2, 0x89, 0xc7,
	0xb8, 0x00, 0x04, 0x00, 0x40, 0xb9, 3, 0, 0, 0, 0x0f, 0xa2, 0x09, 0xf8,
	0x83, 0xe0, 0x0e, 0xe6, 0xf4, 0xf4,
};

/* Where memory is reserved for a kernel that is loaded for a panic. */
static unsigned long crash_memory(void)
{
	FILE *file = fopen("/proc/iomem", "re");
	unsigned long begin = 0;
	char line[128];

	must(file != NULL, "/proc/iomem");
	while (fgets(line, sizeof(line), file)) {
		if (strstr(line, "Crash kernel"))
			begin = strtoul(line, NULL, 16);
	}
	fclose(file);
	if (!begin) {
		fprintf(stderr, "restart: no memory is reserved: boot with crashkernel=64M\n");
		exit(2);
	}
	return begin;
}

static void load(unsigned long at, unsigned long flags)
{
	struct kexec_segment segment = {
		.buf = next_kernel, .bufsz = sizeof(next_kernel), .mem = (void *)at, .memsz = 4096,
	};

	must(syscall(SYS_kexec_load, at, 1L, &segment, flags | KEXEC_ARCH_DEFAULT) == 0, "kexec_load");
}

int main(int argc, char **argv)
{
	struct skidproof_claim claim = { .abi = SKIDPROOF_ABI };
	struct skidproof_alloc code, store;
	struct debug_store *area;
	unsigned char *text;
	int file;

	if (argc != 3) {
		fprintf(stderr, "usage: restart kexec|reboot|panic|crash running|claimed\n");
		return 64;
	}
	if (!strcmp(argv[1], "kexec"))
		load(0x1000000, 0);
	if (!strcmp(argv[1], "crash"))
		load(crash_memory(), KEXEC_ON_CRASH);
	file = open_device();
	must(ioctl(file, SKIDPROOF_IOC_CLAIM, &claim) == 0, "CLAIM");
	text = take(file, &code, SKIDPROOF_CODE, 4096);
	area = take(file, &store, SKIDPROOF_DEBUG_STORE, DS_BYTES);
	memcpy(text, "\xeb\xfe", 2); /* JMP to itself */
	*area = (struct debug_store){
		.bts_base = store.address + 4096, .bts_index = store.address + 4096,
		.bts_maximum = store.address + 8192, .bts_threshold = store.address + 8193,
		.pebs_base = store.address + 8192, .pebs_index = store.address + 8192,
		.pebs_maximum = store.address + DS_BYTES, .pebs_threshold = store.address + DS_BYTES + 1,
		.reset = { PERIOD },
	};

	/* PEBS of branches, a plain counter, branch records. */
	struct skidproof_msr on[] = {
		{ 0x38f, 1, 0, 0 }, { 0x834, 1, 0, 0x400 }, { 0x600, 1, 0, store.address },
		{ 0x186, 1, 0, 0x4300c4 }, { 0x4c1, 1, 0, PERIOD }, { 0x187, 1, 0, 0x4300c0 },
		{ 0x3f1, 1, 0, 1 }, { 0x1d9, 1, 0, 0xc0 }, { 0x38f, 1, 0, 3 },
	};
	const unsigned int count = sizeof(on) / sizeof(on[0]);

	if (!strcmp(argv[2], "running") && !fork()) {
		struct skidproof_run run = {
			.entry = code.address, .enable = ADDRESS(on), .enable_count = count,
			.status_msr = 0x38e, .field_bytes = 8, .deadline_ms = 10000,
		};

		stay_on(0);
		ioctl(file, SKIDPROOF_IOC_RUN, &run);
		perror("restart: the run ended");
		_exit(3);
	}
	if (!strcmp(argv[2], "claimed")) {
		struct skidproof_msrs msrs = { ADDRESS(on), count, 0 };

		must(ioctl(file, SKIDPROOF_IOC_MSRS, &msrs) == 0, "MSRS");
	}
	stay_on(1);
	sync();
	usleep(500000);
	if (!strcmp(argv[1], "kexec")) {
		syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_KEXEC, NULL);
	} else if (!strcmp(argv[1], "reboot")) {
		reboot(RB_AUTOBOOT);
	} else {
		int trigger = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);

		must(trigger >= 0 && write(trigger, "c", 1) == 1, "/proc/sysrq-trigger");
	}
	perror("restart: it did not");
	return 3;
}
