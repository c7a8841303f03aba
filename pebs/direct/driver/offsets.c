// SPDX-License-Identifier: GPL-2.0
/* What enter.S knows of structures; Kbuild makes offsets.h of it. */
#define COMPILE_OFFSETS
#include <linux/kbuild.h>

#include "running.h"

#define ENTRY(field) DEFINE(ENTRY_##field, offsetof(struct skidproof_entry, field))

int main(void)
{
	ENTRY(kernel_sp);
	ENTRY(stack);
	ENTRY(iterations);
	ENTRY(data);
	ENTRY(ctrl);
	ENTRY(debugctl);
	ENTRY(result);
	ENTRY(frame);
	ENTRY(traced);
	ENTRY(user);
	ENTRY(rip);
	DEFINE(RUNNING_kernel_sp, offsetof(struct running, entry.kernel_sp));
	DEFINE(RUNNING_inside, offsetof(struct running, inside));
	DEFINE(RUNNING_debugctl_after, offsetof(struct running, debugctl_after));
	DEFINE(FRAME_BYTES, sizeof(struct skidproof_frame));
	return 0;
}
