/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tests of the driver ask of the virtual lab: interrupts that no device
 * raises, and how the processor stands. See Attack in
 * pebs/engines/bochs/instrument.cc.
 */
#ifndef SKIDPROOF_PEBS_DIRECT_DRIVER_TEST_LAB_H_
#define SKIDPROOF_PEBS_DIRECT_DRIVER_TEST_LAB_H_

#include <cpuid.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../skidproof_uapi.h"

#define ATTACK_PORT 0x5e8
#define ATTACK_LEAF 0x40000400
#define ADDRESS(x) ((unsigned long long)(x))

static inline void must(int held, const char *what)
{
	if (held)
		return;
	perror(what);
	exit(2);
}

static inline void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	must(sched_setaffinity(0, sizeof(set), &set) == 0, "affinity");
}

/* A line as that class takes it, without its end. Once before: may_attack(). */
static inline void attack(const char *line)
{
	outsb(ATTACK_PORT, line, strlen(line));
	outsb(ATTACK_PORT, "\n", 1);
}

static inline void may_attack(void)
{
	must(ioperm(ATTACK_PORT, 1, 1) == 0, "ioperm");
}

/* How often it came, how many places there were, and where the last one was. */
static inline unsigned int came(unsigned int *places, unsigned long long *at)
{
	unsigned int a, b, c, d;

	__cpuid_count(ATTACK_LEAF, 0, a, b, c, d);
	*places = b;
	*at = c | (unsigned long long)d << 32;
	return a;
}

#define NOT_LINUX_IDT 1
#define COUNTS 2
#define SAMPLES 4
#define TRACES 8

/* How a CPU stands: what is on there; its local APIC's entry for PMIs. */
static inline unsigned int state(unsigned int cpu, unsigned int *lvt)
{
	unsigned int a, b, c, d;

	__cpuid_count(ATTACK_LEAF, 2 + cpu, a, b, c, d);
	*lvt = b;
	return a;
}

static inline int open_device(void)
{
	int file = open(SKIDPROOF_DEVICE, O_RDWR | O_CLOEXEC);

	must(file >= 0, SKIDPROOF_DEVICE);
	return file;
}

/* A block of memory that programs see, and a view of it. */
static inline void *take(int file, struct skidproof_alloc *block, unsigned int use, unsigned long long bytes)
{
	void *view;

	*block = (struct skidproof_alloc){ .use = use, .bytes = bytes };
	must(ioctl(file, SKIDPROOF_IOC_ALLOC, block) == 0, "ALLOC");
	view = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, block->offset);
	must(view != MAP_FAILED, "mmap");
	return view;
}

/* Brings CPU 1 there or away. */
static inline void bring(int online)
{
	int file = open("/sys/devices/system/cpu/cpu1/online", O_WRONLY | O_CLOEXEC);

	must(file >= 0 && write(file, online ? "1" : "0", 1) == 1, "cpu1/online");
	close(file);
}

#endif /* SKIDPROOF_PEBS_DIRECT_DRIVER_TEST_LAB_H_ */
