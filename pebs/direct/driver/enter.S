/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The way into a program and out of it, and the stubs that stand in the IDT
 * meanwhile. Between the WRMSR that starts the counters and the program, and
 * between the program and the WRMSR that stops them, nothing loads, stores or
 * branches but the RET or IRET into the program, and what the processor does by
 * itself when a program at ring 3 ends: these instructions are counted.
 */
#include <linux/linkage.h>
#include <asm/asm.h>
#include <asm/segment.h>

#include "skidproof.h"

#define MSR_GLOBAL_CTRL	0x38f
#define MSR_DEBUGCTL	0x1d9

	.text

	.macro save_callee
	pushq	%rbp
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	pushq	%rdi
	movq	%rsp, ENTRY_KERNEL_SP(%rdi)
	movq	ENTRY_SLOTS(%rdi), %rax
	movq	%rsp, (%rax)
	.endm

	/* Interpreter-like beginnings: what is no argument is zero, RFLAGS too. */
	.macro clear_registers
	xorl	%ebx, %ebx
	xorl	%ebp, %ebp
	xorl	%r8d, %r8d
	xorl	%r9d, %r9d
	xorl	%r10d, %r10d
	xorl	%r11d, %r11d
	xorl	%r12d, %r12d
	xorl	%r13d, %r13d
	xorl	%r14d, %r14d
	xorl	%r15d, %r15d
	.endm

	.globl	skidproof_window_begin
skidproof_window_begin:
	.globl	skidproof_enter
	.type	skidproof_enter, @function
skidproof_enter:
	endbr64
	save_callee
	clear_registers
	movq	ENTRY_DATA(%rdi), %rsi
	cmpq	$0, ENTRY_USER(%rdi)
	jne	user
	movq	ENTRY_STACK(%rdi), %rsp
	cmpq	$0, ENTRY_TRACED(%rdi)
	jne	traced
	movl	ENTRY_CTRL(%rdi), %eax
	movl	ENTRY_CTRL + 4(%rdi), %edx
	movq	ENTRY_ITERATIONS(%rdi), %rdi
	movl	$MSR_GLOBAL_CTRL, %ecx
	pushq	$2
	popfq
1:	wrmsr
	_ASM_EXTABLE(1b, refused)
	/* MOV, which leaves the flags alone. */
	movl	$0, %eax
	movl	$0, %ecx
	movl	$0, %edx
	ret
	int3
traced:
	movl	ENTRY_CTRL(%rdi), %r8d
	movl	ENTRY_CTRL + 4(%rdi), %r9d
	movl	ENTRY_DEBUGCTL(%rdi), %eax
	movl	ENTRY_DEBUGCTL + 4(%rdi), %edx
	movq	ENTRY_ITERATIONS(%rdi), %rdi
	movl	$MSR_DEBUGCTL, %ecx
	pushq	$2
	popfq
1:	wrmsr
	_ASM_EXTABLE(1b, refused)
	movl	%r8d, %eax
	movl	%r9d, %edx
	movl	$MSR_GLOBAL_CTRL, %ecx
	movl	$0, %r8d
	movl	$0, %r9d
1:	wrmsr
	_ASM_EXTABLE(1b, refused)
	movl	$0, %eax
	movl	$0, %ecx
	movl	$0, %edx
	ret
	int3

	/* Ring 3 is entered as if it had been interrupted at its first instruction. */
user:
	pushq	$__USER_DS
	pushq	ENTRY_STACK(%rdi)
	pushq	$2
	pushq	$__USER_CS
	pushq	ENTRY_RIP(%rdi)
	cmpq	$0, ENTRY_TRACED(%rdi)
	jne	user_traced
	movl	ENTRY_CTRL(%rdi), %eax
	movl	ENTRY_CTRL + 4(%rdi), %edx
	movq	ENTRY_ITERATIONS(%rdi), %rdi
	movl	$MSR_GLOBAL_CTRL, %ecx
1:	wrmsr
	_ASM_EXTABLE(1b, user_refused)
	movl	$0, %eax
	movl	$0, %ecx
	movl	$0, %edx
	iretq
user_traced:
	movl	ENTRY_CTRL(%rdi), %r8d
	movl	ENTRY_CTRL + 4(%rdi), %r9d
	movl	ENTRY_DEBUGCTL(%rdi), %eax
	movl	ENTRY_DEBUGCTL + 4(%rdi), %edx
	movq	ENTRY_ITERATIONS(%rdi), %rdi
	movl	$MSR_DEBUGCTL, %ecx
1:	wrmsr
	_ASM_EXTABLE(1b, user_refused)
	movl	%r8d, %eax
	movl	%r9d, %edx
	movl	$MSR_GLOBAL_CTRL, %ecx
	movl	$0, %r8d
	movl	$0, %r9d
1:	wrmsr
	_ASM_EXTABLE(1b, user_refused)
	movl	$0, %eax
	movl	$0, %ecx
	movl	$0, %edx
	iretq

	/* Goes on where an NMI took the program's registers to `frame`. */
	.globl	skidproof_resume
	.type	skidproof_resume, @function
skidproof_resume:
	endbr64
	save_callee
	movq	ENTRY_FRAME(%rdi), %rdi
	pushq	FRAME_RIP + 32(%rdi)
	pushq	FRAME_RIP + 24(%rdi)
	pushq	FRAME_RIP + 16(%rdi)
	pushq	FRAME_RIP + 8(%rdi)
	pushq	FRAME_RIP(%rdi)
	pushq	FRAME_RAX(%rdi)
	pushq	FRAME_RCX(%rdi)
	pushq	FRAME_RDX(%rdi)
	pushq	FRAME_CTRL(%rdi)
	pushq	FRAME_DEBUGCTL + 8(%rdi)
	pushq	FRAME_DEBUGCTL(%rdi)
	movq	FRAME_R15(%rdi), %r15
	movq	FRAME_R14(%rdi), %r14
	movq	FRAME_R13(%rdi), %r13
	movq	FRAME_R12(%rdi), %r12
	movq	FRAME_R11(%rdi), %r11
	movq	FRAME_R10(%rdi), %r10
	movq	FRAME_R9(%rdi), %r9
	movq	FRAME_R8(%rdi), %r8
	movq	FRAME_RSI(%rdi), %rsi
	movq	FRAME_RBP(%rdi), %rbp
	movq	FRAME_RBX(%rdi), %rbx
	movq	FRAME_RDI(%rdi), %rdi
	jmp	restart
	int3

	/*
	 * NMI. Until the counters stop, and from when they run again, nothing is
	 * stored or loaded: RAX, RCX, RDX and GLOBAL_CTRL stand in the debug
	 * registers meanwhile, which the run saved. What the kernel's own stack for
	 * NMIs holds is as the processor left it whenever this hands on to the
	 * kernel's entry.
	 */
	.globl	skidproof_nmi_entry
skidproof_nmi_entry:
	endbr64
	movq	%rax, %db0
	movq	%rcx, %db1
	movq	%rdx, %db2
	movl	$MSR_GLOBAL_CTRL, %ecx
	rdmsr
	shlq	$32, %rdx
	orq	%rdx, %rax
	movq	%rax, %db3
	movl	$0, %eax
	movl	$0, %edx
	wrmsr
	movq	%db0, %rax
	pushq	%rax
	movq	%db1, %rax
	pushq	%rax
	movq	%db2, %rax
	pushq	%rax
	movq	%db3, %rax
	pushq	%rax
	movl	$MSR_DEBUGCTL, %ecx
	rdmsr
	pushq	%rdx
	pushq	%rax
	andl	$~DEBUGCTL_RECORDS, %eax
	wrmsr
	pushq	%rbx
	pushq	%rbp
	pushq	%rsi
	pushq	%rdi
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	cld
	testb	$3, FRAME_CS(%rsp)
	jz	1f
	swapgs
1:
	movq	%rsp, %rdi
	/* The C ABI's alignment, which the IST stack need not have here. */
	movq	%rsp, %rbx
	andq	$-16, %rsp
	call	skidproof_nmi
	movq	%rbx, %rsp
	testq	%rax, %rax
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rdi
	popq	%rsi
	popq	%rbp
	popq	%rbx
	jnz	foreign
restart:
	popq	%rax
	popq	%rdx
	movl	$MSR_DEBUGCTL, %ecx
	wrmsr
	popq	%rdx
	popq	%rax
	movq	%rax, %db2
	popq	%rax
	movq	%rax, %db1
	popq	%rax
	movq	%rax, %db0
	movl	%edx, %eax
	shrq	$32, %rdx
	movl	$MSR_GLOBAL_CTRL, %ecx
	wrmsr
	movq	%db2, %rdx
	movq	%db1, %rcx
	movq	%db0, %rax
	iretq
foreign:
	popq	%rax
	popq	%rdx
	movl	$MSR_DEBUGCTL, %ecx
	wrmsr
	popq	%rax
	movq	%rax, %rdx
	shrq	$32, %rdx
	movl	$MSR_GLOBAL_CTRL, %ecx
	wrmsr
	popq	%rdx
	popq	%rcx
	popq	%rax
	jmpq	*skidproof_kernel_nmi(%rip)
	int3
	.globl	skidproof_window_end
skidproof_window_end:

	/* Programs return here; above their stack stands the kernel's. */
	.globl	skidproof_landing
skidproof_landing:
	movq	%rax, %r8
	movl	$MSR_GLOBAL_CTRL, %ecx
	xorl	%eax, %eax
	xorl	%edx, %edx
	wrmsr
	.globl	skidproof_landing_end
skidproof_landing_end:
	movq	(%rsp), %rsp
	movq	%r8, %rax
	jmp	leave
	int3

	.globl	skidproof_landing_traced
skidproof_landing_traced:
	movq	%rax, %r8
	movl	$MSR_GLOBAL_CTRL, %ecx
	xorl	%eax, %eax
	xorl	%edx, %edx
	wrmsr
	.globl	skidproof_landing_traced_end
skidproof_landing_traced_end:
	movl	8(%rsp), %eax
	movl	12(%rsp), %edx
	movl	$MSR_DEBUGCTL, %ecx
	wrmsr
	movq	(%rsp), %rsp
	movq	%r8, %rax
	jmp	leave
	int3

	/* A write that starts the counters raised #GP; which one is in ECX. */
refused:
	movq	16(%rsp), %rsp
	movq	(%rsp), %rdi
	movq	%rcx, ENTRY_REFUSED(%rdi)
	jmp	leave
	int3

user_refused:
	addq	$40, %rsp
	movq	(%rsp), %rdi
	movq	%rcx, ENTRY_REFUSED(%rdi)
	jmp	leave
	int3

	/* The handlers send a program here that is to be left where it is. */
	.globl	skidproof_left
skidproof_left:
leave:
	cld
	popq	%rdi
	movq	%rax, ENTRY_RESULT(%rdi)
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbx
	popq	%rbp
	ret
	int3

	/*
	 * #UD, by which a program at ring 3 returns: first the counters stop, then
	 * the recording of branches.
	 */
	.globl	skidproof_ud_entry
skidproof_ud_entry:
	endbr64
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	movl	$MSR_GLOBAL_CTRL, %ecx
	xorl	%eax, %eax
	xorl	%edx, %edx
	wrmsr
	.globl	skidproof_ud_stopped
skidproof_ud_stopped:
	movl	$MSR_DEBUGCTL, %ecx
	rdmsr
	andl	$~DEBUGCTL_RECORDS, %eax
	wrmsr
	popq	%rdx
	popq	%rcx
	popq	%rax
	jmp	skidproof_fault_entries + 6 * SKIDPROOF_FAULT_ENTRY_BYTES
	int3

	/* One for each exception, 16 bytes apart. */
	.balign 16
	.globl	skidproof_fault_entries
skidproof_fault_entries:
	vector = 0
	.rept	SKIDPROOF_FAULT_ENTRIES
	.balign 16
	endbr64
	/* Those that push an error code themselves. */
	.if !((1 << vector) & 0x60227d00)
	pushq	$0
	.endif
	pushq	$vector
	jmp	fault
	vector = vector + 1
	.endr
	.balign 16
fault:
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	pushq	%rbx
	pushq	%rsi
	pushq	%rdi
	pushq	%rbp
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	cld
	testb	$3, FAULT_CS(%rsp)
	jz	1f
	swapgs
1:
	movq	%rsp, %rdi
	andq	$-16, %rsp
	call	skidproof_fault
	movq	%rax, %rsp
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rbp
	popq	%rdi
	popq	%rsi
	popq	%rbx
	popq	%rdx
	popq	%rcx
	popq	%rax
	ret
	int3

	.globl	skidproof_iret
skidproof_iret:
	iretq

	.section .note.GNU-stack, "", @progbits
