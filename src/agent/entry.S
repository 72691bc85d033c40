/* SPDX-License-Identifier: MIT */
/*
 * The agent's entry stubs. Trampolines jump here from their cold parts.
 *
 * On entry rsp is S, the address of the frame's return-address slot, and r11 points to the
 * trampoline's descriptor. Everything is kept in the 128 bytes below rsp, which a signal handler
 * leaves alone, until the stub has switched to the thread's own agent stack:
 *
 *     -8 rax   -16 rdx   -24 r11   -32 r10   -40 rcx   -48 rsi   -56 rdi   -64 r8
 *    -72 r9    -80 rbx   -88 signal mask     -96 half (0 enter, 1 return, 2 .. callouts, CT_HALF_*)
 *   -104 where to go on (retry, and the stubs' way out)     -112 where to go on (skip)     -120 descriptor
 *   -128 rbp (CT_HALF_FRAMES), or the clock of an event with detail
 *
 * rax, rdx, r11 are stored by the trampoline, r10 too in the enter half. All signals are blocked
 * while the agent's stack is in use. No stub touches a vector register, x87 or mxcsr.
 *
 * Longer than others: the stubs jump into each other, and their short jumps want them in one section.
 */
#include "ring/callouts.h"
#include "ring/offsets.h"

#define SYS_write          1
#define SYS_rt_sigaction   13
#define SYS_rt_sigprocmask 14
#define SYS_rt_sigreturn   15
#define SYS_writev         20
#define SYS_mmap           9
#define SYS_mprotect       10
#define SYS_munmap         11
#define SYS_mremap         25
#define SYS_madvise        28
#define SYS_getpid         39
#define SYS_arch_prctl     158
#define SYS_gettid         186
#define SYS_tgkill         234
#define SYS_clone          56
#define SYS_futex          202
#define SYS_execve         59
#define SYS_prctl          157
#define SYS_getrlimit      97
#define SYS_setrlimit      160
#define SYS_prlimit64      302
#define SYS_seccomp        317
#define SYS_execveat       322
#define SYS_pkey_mprotect  329
#define SYS_clone3         435
#define ARCH_SET_GS        0x1001

#define CFG(field) agent_config + field(%rip)

  .section .text.head, "ax", @progbits
  .globl agent_base
  .hidden agent_base
  .type agent_base, @object
agent_base:
  /* struct ct_agent_image, agent/image.h */
  .long 0x544e4741                        /* "AGNT" */
  .long agent_data_start - agent_base     /* first byte that must be writable, page aligned */
  .long agent_end - agent_base            /* bytes in memory */
  .long agent_config - agent_base
  .long agent_page_off - agent_base
  .long agent_page_lookup - agent_base
  .long agent_slow_enter - agent_base
  .long agent_slow_return - agent_base
  .long agent_not_module - agent_base
  .long agent_restore_ra_slot - agent_base
  .long agent_trap - agent_base
  .long agent_restorer - agent_base
  .long agent_restore_passthrough - agent_base
  .long agent_sample_due - agent_base
  .long agent_crash - agent_base
  .long agent_watch_back - agent_base
  .long agent_page_silent - agent_base
  .long agent_detail_full - agent_base
  .long agent_detail_tail - agent_base
  .long agent_detail_texts - agent_base
#define X(name) .long agent_callout_##name - agent_base;
  CT_CALLOUT_ENTRIES(X)
#undef X
  .size agent_base, . - agent_base

  .text
/* What the handlers of signals return to. */
  .globl agent_restorer
  .hidden agent_restorer
agent_restorer:
  mov $SYS_rt_sigreturn, %eax
  syscall

/* Sets gs to the page whose address is in rdi. Clobbers rax, rcx, rsi, r11. */
  .macro SET_GS
  cmpl $0, CFG(CT_CFG_WRGSBASE)
  je 71f
  wrgsbase %rdi
  jmp 72f
71:
  mov %rdi, %rsi
  mov $ARCH_SET_GS, %edi
  mov $SYS_arch_prctl, %eax
  syscall
  mov %rsi, %rdi
72:
  .endm

/* Events that are lost because the thread has no slot: of a call that is called through, its return's too. -96(%rsp):
 * which half; -120: the descriptor. Clobbers rax, rcx, r11. */
  .macro COUNT_NO_SLOT
  cmpq $CT_HALF_REQUEST, -96(%rsp)
  jae 73f
  mov -120(%rsp), %r11
  mov $1, %eax
  cmpb $CT_HOOK_PASSTHROUGH, CT_DESC_MODE(%r11)
  je 73f
  cmpb $CT_HOOK_FULL, CT_DESC_MODE(%r11)
  jne 72f
  inc %eax
72:
  mov CFG(CT_CFG_RING), %rcx
  lock addq %rax, CT_RING_DROPPED_NO_SLOT(%rcx)
73:
  .endm

/* Appends an event as trampolines do. r10d: its word without the tag. Clobbers rax, rdx, r10, what is at -40(%rsp). */
  .macro RECORD
  rdtsc
  shl $32, %rdx
  or %rdx, %rax
  mov $16, %edx
  xadd %rdx, %gs:CT_GS_CURSOR
  test $CT_CURSOR_VALID, %edx
  jz agent_slow_enter
  mov %rcx, -40(%rsp)
  mov %edx, %ecx
  and $CT_WORD_TAG_MASK, %ecx
  sub %rcx, %rdx
  or %rcx, %r10
  mov -40(%rsp), %rcx
  mov %rax, (%rdx)
  mov %esp, %eax
  shl $32, %rax
  or %r10, %rax
  mov %rax, 8(%rdx)
  .endm

/* Around a call of a C function on the caller's stack: keeps all registers but rax. */
  .macro SAVE_FOR_CALL
  sub $184, %rsp
  mov %rdi, 0(%rsp)
  mov %rsi, 8(%rsp)
  mov %rcx, 16(%rsp)
  mov %r8, 24(%rsp)
  mov %r9, 32(%rsp)
  mov %r10, 40(%rsp)
  mov %r11, 48(%rsp)
  mov %rdx, 56(%rsp)
  .endm
  .macro RESTORE_FROM_CALL
  mov 0(%rsp), %rdi
  mov 8(%rsp), %rsi
  mov 16(%rsp), %rcx
  mov 24(%rsp), %r8
  mov 32(%rsp), %r9
  mov 40(%rsp), %r10
  mov 48(%rsp), %r11
  mov 56(%rsp), %rdx
  add $184, %rsp
  .endm

/* eax = what the call with these arguments concerns (agent_map_concerns). Clobbers rax alone. */
  .macro MAP_CONCERNS
  SAVE_FOR_CALL
  mov %r11, %r9
  call agent_map_concerns
  RESTORE_FROM_CALL
  .endm

  .globl agent_slow_enter
agent_slow_enter:
  mov %rcx, -40(%rsp)
  mov CT_DESC_ENTER(%r11), %rcx
  mov %rcx, -104(%rsp)
  mov CT_DESC_RELOCATED(%r11), %rcx
  mov %rcx, -112(%rsp)
  movq $0, -96(%rsp)
  jmp switch_stacks

  .globl agent_slow_return
agent_slow_return:
  mov %r10, -32(%rsp)
  mov %rcx, -40(%rsp)
  mov CT_DESC_RET(%r11), %rcx
  mov %rcx, -104(%rsp)
  mov CT_DESC_RET_DONE(%r11), %rcx
  mov %rcx, -112(%rsp)
  movq $1, -96(%rsp)

/*
 * The thread has gone to another stack, on which it was before: a coroutine. It is found in the map (ring/stacks.h), the
 * two events that report a switch are written, and the trampoline tries again: some 30 ns, without a system call and
 * with signals as they are. All else is slow_common's: a stack that is new, or that another thread was on last; one
 * whose addresses have the low halves of the stack before; a page that is not ours; no room in the segment.
 *
 * A signal handler may come in between anywhere, and go to another stack and back by itself. The events take their
 * entries at once, so that none of its own come between them; then the range is put in by one instruction, so that it
 * is never a mixture. When it is not ours in the end, the trampoline comes back here.
 */
switch_stacks:
  cmpl $CT_MODE_ON, %gs:CT_GS_MODE
  jne slow_common
  cmpl $0, %gs:CT_GS_BUSY
  jne slow_common
  cmpl $0, %gs:CT_GS_MISTAKABLE
  jne slow_common
  cmpq $0, %gs:CT_GS_STACK_LEN
  je slow_common
  mov %rsi, -48(%rsp)
  mov %rdi, -56(%rsp)
  mov %rbx, -80(%rsp)
  mov CFG(CT_CFG_DELTA), %rax
  prefetchw (%rsp, %rax) /* with many stacks it is in no cache, and neither are the map's words */
  mov CFG(CT_CFG_STACKS), %r10
  mov %rsp, %rax
  shr $32, %rax
  mov (%r10, %rax, 4), %eax
  test %eax, %eax
  jz no_switch
  shl $12, %rax
  add %r10, %rax
  mov %rsp, %rcx
  shr $22, %rcx
  and $1023, %ecx
  mov CT_MAP_NODES-4096(%rax, %rcx, 4), %eax
  test %eax, %eax
  jz no_switch
  js 1f /* CT_STACK_WHOLE */
  shl $12, %rax
  add %r10, %rax
  mov %rsp, %rcx
  shr $12, %rcx
  and $1023, %ecx
  mov CT_MAP_NODES-4096(%rax, %rcx, 4), %eax
  test %eax, %eax
  jz no_switch
1:
  and $0x7fffffff, %eax
  shl $CT_STACK_SHIFT, %rax
  lea CT_MAP_STACKS-(1 << CT_STACK_SHIFT)(%r10, %rax), %r10 /* struct ct_stack */
  mov (%r10), %rbx /* its lower end */
  mov CT_STACK_HI(%r10), %rcx
  sub %rbx, %rcx /* its bytes */
  mov %rsp, %rax
  sub %rbx, %rax
  cmp %rcx, %rax
  jae no_switch
  cmpl $CT_STACK_IS_READY, CT_STACK_STATE(%r10)
  jne no_switch
  mov %gs:CT_GS_SLOT, %eax
  inc %eax
  cmp %eax, CT_STACK_OWNER(%r10)
  jne no_switch
  mov %gs:CT_GS_STACK_LO, %esi /* low halves of the stack before, or the same stack */
  mov %ebx, %eax
  sub %esi, %eax
  cmp %gs:CT_GS_STACK_LEN, %rax
  jb no_switch
  sub %ebx, %esi
  cmp %rcx, %rsi
  jb no_switch
  mov %gs:CT_GS_CURSOR, %rax /* room for the hook's event as well? */
  test $CT_CURSOR_VALID, %eax
  jz no_switch
  movzwl %ax, %eax
  cmp $(0x10000 - 4 * 16), %eax
  ja no_switch
  rdtsc
  mov %rdx, %rdi
  shl $32, %rdi
  or %rax, %rdi
  mov $32, %esi
  xadd %rsi, %gs:CT_GS_CURSOR
  mov %esi, %eax
  and $CT_WORD_TAG_MASK, %eax
  lea 16(%rsi), %edx
  and %esi, %edx
  test $CT_CURSOR_VALID, %edx
  jz no_entry
  and $-4, %rsi
  mov %rdi, (%rsi)
  mov %rdi, 16(%rsi)
  mov CT_STACK_CONTEXT(%r10), %edx
  shl $8, %edx
  lea CT_WORD_SWITCH(%rdx, %rax), %edx
  mov %esp, %edi
  shl $32, %rdi
  or %rdi, %rdx
  mov %rdx, 8(%rsi)
  mov %ecx, %edx
  shr $4, %edx /* pages, times 2^8 */
  lea CT_WORD_STACK(%rdx, %rax), %edx
  mov %rbx, %rdi
  shl $32, %rdi
  or %rdi, %rdx
  mov %rdx, 24(%rsi)
  movl $0, %gs:CT_GS_CONTEXT /* what the slow path knows of the drain */
  lea (%rbx, %rcx), %rdi
1: /* as agent_set_stack */
  mov %rdi, %gs:CT_GS_STACK_HI
2:
  mov %gs:CT_GS_STACK_LO, %rax
  mov %gs:CT_GS_STACK_LEN, %rdx
  cmpxchg16b %gs:CT_GS_STACK_LO
  jne 2b
3:
  mov %gs:CT_GS_HOOKED_LO, %rax
  mov %gs:CT_GS_HOOKED_LEN, %rdx
  cmpxchg16b %gs:CT_GS_HOOKED_LO
  jne 3b
  cmp %rdi, %gs:CT_GS_STACK_HI /* a handler that came in between has put its own in */
  jne 1b
  cmp %rbx, %gs:CT_GS_STACK_LO
  jne 1b
  mov -40(%rsp), %rcx
  mov -48(%rsp), %rsi
  mov -56(%rsp), %rdi
  mov -80(%rsp), %rbx
  jmp leave_short

no_entry: /* a handler has taken the room; an entry that is there gets an event that says nothing */
  test $CT_CURSOR_VALID, %esi
  jz no_switch
  and $-4, %rsi
  mov %rax, 8(%rsi)
no_switch:
  mov -48(%rsp), %rsi
  mov -56(%rsp), %rdi
  mov -80(%rsp), %rbx
  jmp slow_common

/* longjmp: where it goes is stored as an event. */
  .globl agent_callout_longjmp
agent_callout_longjmp:
  mov %rcx, -40(%rsp)
  mov CT_DESC_AFTER_CALLOUT(%r11), %rcx
  mov %rcx, -104(%rsp)
  mov %rcx, -112(%rsp)
  movq $3, -96(%rsp)
  jmp slow_common

/*
 * memcpy(rdi = to, rsi = from, rdx = bytes). From the part of the stack that may have trampolines' addresses: is there
 * a return-address slot with one in what is copied? Such a slot has an entry in the return store. Most words have none
 * that was ever written, so these are looked at first; one that was written says little by itself, since entries stay.
 *
 * Of a thread that has copied such a part before, all copies from and to its stack are reported, but for small ones.
 */
  .globl agent_callout_copy
agent_callout_copy:
  mov %r11, -120(%rsp)
  mov %rcx, -40(%rsp)
  mov %gs:CT_GS_HOOKED_LO, %rcx
  mov %gs:CT_GS_STACK_HI, %r10
  sub %rcx, %r10
  mov %rsp, %rax
  sub %rcx, %rax
  cmp %r10, %rax
  jae copy_on /* on another stack */
  mov %rsi, %rax
  sub %rcx, %rax
  cmpl $0, %gs:CT_GS_COPIES
  jne copies_are_reported
  add %rsi, %rdx
  add %gs:CT_GS_HOOKED_LEN, %rcx
  cmp %rcx, %rdx
  cmova %rcx, %rdx /* the end of what to look at */
  lea 8(%rsp), %r10 /* our own return address may be copied as it is: nobody returns by that */
  cmp %r10, %rsi
  cmova %rsi, %r10
  and $-8, %r10
  mov CFG(CT_CFG_DELTA), %r11
1: /* word by word, up to a multiple of 64 */
  cmp %rdx, %r10
  jae copy_on
  mov (%r10, %r11), %rax
  test %rax, %rax
  jz 2f
  mov (%r10), %rcx
  mov %rcx, %rax
  shr $47, %rax
  jnz 2f
  shr $CT_TABLE_SHIFT, %rcx
  add CFG(CT_CFG_TABLE), %rcx
  cmpb $2, (%rcx)
  je copy_slow
2:
  add $8, %r10
  test $63, %r10b
  jnz 1b
3: /* as long as there is nothing in the store, eight words at a time */
  lea 64(%r10), %rax
  cmp %rdx, %rax
  ja 1b
  mov (%r10, %r11), %rcx
  or 8(%r10, %r11), %rcx
  or 16(%r10, %r11), %rcx
  or 24(%r10, %r11), %rcx
  or 32(%r10, %r11), %rcx
  or 40(%r10, %r11), %rcx
  or 48(%r10, %r11), %rcx
  or 56(%r10, %r11), %rcx
  jnz 1b
  mov %rax, %r10
  jmp 3b
copy_slow:
  mov -120(%rsp), %r11
  movq $CT_HALF_COPY, -96(%rsp)
  jmp callout_slow
copies_are_reported: /* rcx = lower end of the stack, r10 = its bytes, rax = rsi - rcx */
  cmp $CT_COPY_BYTES_MIN, %rdx
  jb copy_on
  cmp %r10, %rax
  jb copy_slow
  mov %rdi, %rax
  sub %rcx, %rax
  cmp %r10, %rax
  jb copy_slow
copy_on:
  mov -40(%rsp), %rcx
  mov -120(%rsp), %r11
  jmp leave_callout

/* Its calls are recorded as instructions, if some are still wanted. */
  .globl agent_callout_itrace
agent_callout_itrace:
  movzbl CT_DESC_ITRACE(%r11), %eax
  shl $CT_ITRACE_PROBE_SHIFT, %eax
  mov CFG(CT_CFG_RING), %r10
  cmpl $0, CT_RING_ITRACE-(1 << CT_ITRACE_PROBE_SHIFT)(%r10, %rax)
  je leave_callout
  mov %rcx, -40(%rsp)
  movq $CT_HALF_ITRACE, -96(%rsp)
  jmp callout_slow

/* The function goes to another place on the stack. */
  .globl agent_callout_move
agent_callout_move:
  mov %rcx, -40(%rsp)
  movq $CT_HALF_MOVE, -96(%rsp)
  jmp callout_slow

/*
 * The function goes by rbp from frame to frame and reads their slots (__builtin_return_address(1)). Is there a trampoline's
 * address in one of the next? Only frames on the part of the stack that may have some are looked at, each further out
 * than the one before; where rbp is no frame pointer that soon ends.
 */
  .globl agent_callout_frames
agent_callout_frames:
  mov %rcx, -40(%rsp)
  mov %rsi, -48(%rsp)
  mov %gs:CT_GS_HOOKED_LO, %rcx
  mov %rsp, %rdx
  sub %rcx, %rdx
  cmp %gs:CT_GS_HOOKED_LEN, %rdx
  jae 3f
  add %gs:CT_GS_HOOKED_LEN, %rcx
  sub $8, %rcx /* after the last place of a saved rbp */
  mov $CT_FRAMES_READ, %esi
  mov %rsp, %rdx
  mov %rbp, %rax
1:
  cmp %rdx, %rax
  jbe 3f
  cmp %rcx, %rax
  jae 3f
  test $7, %al
  jnz 3f
  mov 8(%rax), %r10
  mov %r10, %rdx
  shr $47, %rdx
  jnz 2f
  shr $CT_TABLE_SHIFT, %r10
  add CFG(CT_CFG_TABLE), %r10
  cmpb $2, (%r10)
  je 4f
2:
  mov %rax, %rdx
  mov (%rax), %rax
  dec %esi
  jnz 1b
3:
  mov -40(%rsp), %rcx
  mov -48(%rsp), %rsi
  jmp leave_callout
4:
  mov -48(%rsp), %rsi
  mov %rbp, -128(%rsp)
  movq $CT_HALF_FRAMES, -96(%rsp)
  jmp callout_slow

/*
 * __mcount_internal(rdi = the address that the counted function returns to, rsi = an address in it), called by mcount
 * after `sub $56, %rsp` or __fentry__ after `sub $64, %rsp`. mcount has read the slot beside rbp, __fentry__ the one
 * above its own return address. Where a trampoline's address was in it, the true one is counted. The slot stays as it
 * is.
 */
  .globl agent_callout_count
agent_callout_count:
  mov %rdi, %rax
  mov %rdi, %r10
  shr $47, %r10
  jnz leave_callout
  shr $CT_TABLE_SHIFT, %rax
  add CFG(CT_CFG_TABLE), %rax
  cmpb $2, (%rax)
  jne leave_callout
  lea 80(%rsp), %rax
  cmp -8(%rax), %rsi
  jne 1f
  cmp (%rax), %rdi
  je 2f
1:
  cmp 64(%rsp), %rsi
  jne leave_callout
  lea 8(%rbp), %rax
  cmp (%rax), %rdi
  jne leave_callout
2:
  mov CFG(CT_CFG_DELTA), %r10
  mov (%rax, %r10), %rdi
  jmp leave_callout

/* mremap(rdi = address, rsi = bytes, ...) */
  .globl agent_callout_remap
agent_callout_remap:
  MAP_CONCERNS
  cmp $CT_CONCERNS_OURS, %eax
  je leave_for_mapping
  mov %rcx, -40(%rsp)
  movq $CT_HALF_REMAP, -96(%rsp)

callout_slow: /* rcx is saved, r11 = descriptor */
  mov CT_DESC_AFTER_CALLOUT(%r11), %rcx
  mov %rcx, -104(%rsp)
  mov %rcx, -112(%rsp)
  jmp slow_common

/*
 * mmap, munmap, mremap, makecontext, make_fcontext: what of ours is concerned moves aside first. Most concern nothing.
 */
  .globl agent_callout_map
agent_callout_map:
  MAP_CONCERNS
  cmp $CT_CONCERNS_OURS, %eax
  je leave_for_mapping
  test %eax, %eax
  jz leave_callout
  mov %rcx, -40(%rsp)
  mov CT_DESC_AFTER_CALLOUT(%r11), %rcx
  mov %rcx, -104(%rsp)
  mov %rcx, -112(%rsp)
  movq $CT_HALF_MAP, -96(%rsp)
  jmp slow_common

/* Requests to the controller: the displaced instructions follow whatever the outcome. */
  .globl agent_callout_request
agent_callout_request:
  cmpl $0, agent_limited(%rip)
  jne 2f
  cmpl $0, CFG(CT_CFG_TASKS_RAISED)
  je 1f
2:
  SAVE_FOR_CALL
  mov %r11, %rdi
  call agent_limits_exec
  RESTORE_FROM_CALL
1:
  mov %rcx, -40(%rsp)
  mov CT_DESC_AFTER_CALLOUT(%r11), %rcx
  mov %rcx, -104(%rsp)
  mov %rcx, -112(%rsp)
  movq $2, -96(%rsp)

slow_common:
  mov %rsi, -48(%rsp)
  mov %rdi, -56(%rsp)
  mov %r8, -64(%rsp)
  mov %r9, -72(%rsp)
  mov %rbx, -80(%rsp)
  mov %r11, -120(%rsp)
  cmpl $0, CFG(CT_CFG_WRGSBASE)
  je 1f
  rdgsbase %rax
  mov %rax, %rcx
  sub CFG(CT_CFG_CONTROLS), %rax
  cmp $(CT_SLOT_COUNT * CT_CONTROL_STRIDE), %rax
  jb 1f
  lea agent_base(%rip), %rax
  cmp %rax, %rcx
  jb leave_skip /* the program has taken gs for itself: nothing of ours is there */
  lea agent_end(%rip), %rax
  cmp %rax, %rcx
  jae leave_skip
1:
  cmpl $CT_MODE_OFF, %gs:CT_GS_MODE
  je off
  cmpl $0, CFG(CT_CFG_NO_SYSCALLS)
  jne no_syscalls
  cmpl $0, %gs:CT_GS_SILENT
  jne no_syscalls
  cmpl $CT_MODE_NO_SLOT, %gs:CT_GS_MODE
  je no_slot

block:
  mov $SYS_rt_sigprocmask, %eax
  xor %edi, %edi /* SIG_BLOCK */
  lea CFG(CT_CFG_SIGNAL_MASK), %rsi
  lea -88(%rsp), %rdx
  mov $8, %r10d
  syscall
who:
  mov $SYS_gettid, %eax
  syscall
  mov %eax, %r8d
  cmp %gs:CT_GS_TID, %eax
  jne find_slot
  cmpl $CT_MODE_ON, %gs:CT_GS_MODE
  jne find_slot
  mov %gs:CT_GS_AGENT_SP, %rdi
  sub $CT_CONTROL_STRIDE, %rdi
  xor %r9d, %r9d

on_agent_stack: /* rdi = control page, r8d = tid, r9d = whether the page was found by the thread's id */
  xor %eax, %eax
on_agent_stack_silently: /* eax = 1: signals are as they were */
  mov %rsp, %rsi
  lea CT_CONTROL_STRIDE(%rdi), %rsp
  push %rsi
  push %rax
  push %rbp /* these five and rbx at -80(%rsi): for who looks at our stack from outside (record/backtrace.c) */
  push %r12
  push %r13
  push %r14
  push %r15
  sub $8, %rsp
  mov -120(%rsi), %rdx
  mov -96(%rsi), %ecx
  call agent_slow_path
  add $(8 + 5 * 8), %rsp
  pop %rcx
  pop %rsp
  mov %rax, -96(%rsp)
  movl $0, %gs:CT_GS_BUSY
  test %ecx, %ecx
  jz unblock
  cmpq $CT_VERDICT_RETRY, -96(%rsp)
  je leave
  jmp leave_skip

/* The target, or this thread, is about to be or is where any system call of ours might kill it (agent/watch.c). */
no_syscalls:
  cmpl $CT_MODE_ON, %gs:CT_GS_MODE
  jne off
  cmpl $0, %gs:CT_GS_BUSY
  jne busy
  movl $1, %gs:CT_GS_BUSY
  mov %gs:CT_GS_TID, %r8d
  mov %gs:CT_GS_AGENT_SP, %rdi
  sub $CT_CONTROL_STRIDE, %rdi
  xor %r9d, %r9d
  mov $1, %eax
  jmp on_agent_stack_silently

/*
 * Every slot is taken. A search takes a system call for each, so the call goes on at once, until the controller has given
 * a slot back, and but for one call in as many as a search has steps: we may be a child of fork, or there is no
 * controller any more.
 */
no_slot:
  cmpq $CT_HALF_REQUEST, -96(%rsp)
  jae block
  mov CFG(CT_CFG_RING), %rcx
  mov CT_RING_SLOTS_FREED(%rcx), %eax
  inc %eax
  cmp %eax, agent_no_slot_since(%rip)
  jne block
  incl agent_no_slot_calls(%rip)
  testl $(CT_SLOT_COUNT - 1), agent_no_slot_calls(%rip)
  jz block
  COUNT_NO_SLOT
  movq $0, %gs:CT_GS_CURSOR /* as in `off` */
  jmp leave_skip

/* Nobody records by this page. Its cursor must not be counted up to an address that looks like one. */
off:
  cmpq $2, -96(%rsp)
  jne 1f
  cmpq $0, CFG(CT_CFG_HANDSHAKES)
  je 1f
  cmpl $0, %gs:CT_GS_SILENT
  jne 1f
  cmpl $0, CFG(CT_CFG_NO_SYSCALLS)
  je block /* an exec, perhaps of a child that shares our memory */
1:
  movq $0, %gs:CT_GS_CURSOR
  jmp leave_skip

/* We are a handler that has interrupted the agent: until that goes on, nobody takes the cursor back when it is after
 * the segment's end, so it stays there. */
busy:
  incl %gs:CT_GS_BUSY_SKIPS
  testl $CT_CURSOR_VALID, %gs:CT_GS_CURSOR
  jnz leave_skip
  andq $-CT_CURSOR_VALID, %gs:CT_GS_CURSOR
  jmp leave_skip

/*
 * This thread does not own the page that gs points to: a new thread, one that comes back from clone,
 * a child of fork, or a child that shares our memory (vfork, posix_spawn).
 */
find_slot:
  cmpl $CT_MODE_LOOKUP, %gs:CT_GS_MODE
  je 1f
  cmpl $CT_MODE_NO_SLOT, %gs:CT_GS_MODE
  jne 2f
1:
  movq $0, %gs:CT_GS_CURSOR /* as in `off` */
2:
  mov $SYS_getpid, %eax
  syscall
  cmp CFG(CT_CFG_PID), %eax
  jne stranger
  mov CFG(CT_CFG_CONTROLS), %rcx
  cmpq $0, CT_CONTROL_OWN(%rcx)
  je stranger /* forked, and in another pid namespace, where it has the same number */
  cmpl $CT_MODE_OFF, %gs:CT_GS_MODE
  je turn_off
  mov CFG(CT_CFG_TIDS), %r10
  mov %r8d, %ecx
  and $(CT_SLOT_COUNT - 1), %ecx
  mov $CT_SLOT_COUNT, %r9d
1: /* the slot that bears our id */
  cmp %r8d, (%r10, %rcx, 4)
  je slot_found
  inc %ecx
  and $(CT_SLOT_COUNT - 1), %ecx
  dec %r9d
  jnz 1b
  mov CFG(CT_CFG_RING), %rdi
  mov CT_RING_SLOTS_FREED(%rdi), %edi
  inc %edi /* before the look: what is given back meanwhile is looked for */
  mov $CT_SLOT_COUNT, %r9d
2: /* a free one */
  xor %eax, %eax
  cmp %eax, (%r10, %rcx, 4)
  jne 3f
  lock cmpxchg %r8d, (%r10, %rcx, 4)
  je slot_found
3:
  inc %ecx
  and $(CT_SLOT_COUNT - 1), %ecx
  dec %r9d
  jnz 2b
  cmp agent_no_slot_since(%rip), %edi
  jne 6f
  testl $(CT_SLOT_COUNT - 1), agent_no_slot_calls(%rip)
  jnz none_is_free /* others have looked already */
6:
  mov %edi, %r10d
  mov %ecx, %ebx
  mov $CT_SLOT_COUNT, %r9d
4: /* one of a thread that is dead */
  mov CFG(CT_CFG_PID), %edi
  mov CFG(CT_CFG_TIDS), %rcx
  mov (%rcx, %rbx, 4), %esi
  xor %edx, %edx
  mov $SYS_tgkill, %eax
  syscall
  cmp $-3, %eax /* ESRCH */
  jne 5f
  mov %esi, %eax
  mov CFG(CT_CFG_TIDS), %rcx
  lock cmpxchg %r8d, (%rcx, %rbx, 4)
  mov %ebx, %ecx
  je slot_found
5:
  inc %ebx
  and $(CT_SLOT_COUNT - 1), %ebx
  dec %r9d
  jnz 4b
  mov %r10d, agent_no_slot_since(%rip)
  incl agent_no_slot_calls(%rip)
none_is_free:
  COUNT_NO_SLOT
  lea agent_page_no_slot(%rip), %rdi
  SET_GS
  movq $CT_VERDICT_SKIP, -96(%rsp)
  jmp unblock

slot_found: /* ecx = index, r8d = tid */
  mov CFG(CT_CFG_CONTROLS), %rdi
  shl $CT_CONTROL_SHIFT, %rcx
  add %rcx, %rdi
  SET_GS
  mov $1, %r9d
  jmp on_agent_stack

/*
 * A child of the traced process: eax = its id, r8d = the thread's. One that was forked asks to be made a traced process
 * itself, on a page of the ring that it takes for its own. One that shares our memory only says that it is about to
 * exec.
 */
stranger:
  mov CFG(CT_CFG_HANDSHAKES), %rbx
  test %rbx, %rbx
  jz turn_off
  mov CFG(CT_CFG_CONTROLS), %rcx
  cmpq $0, CT_CONTROL_OWN(%rcx)
  je 1f
  cmpq $2, -96(%rsp)
  jne turn_off
1: /* on the program's stack, below all that is kept there */
  mov %eax, %edi
  mov %rsp, %rbx
  lea -256(%rsp), %rsp
  and $-16, %rsp
  push %r8
  push %r8
  call agent_take_handshake_page
  pop %r8
  mov %rbx, %rsp
  mov %rax, %rbx
  test %rax, %rax
  jz turn_off
  mov %rsp, %rsi
  lea CT_HANDSHAKE_BYTES(%rbx), %rsp
  push %rsi
  push %rsi
  mov %rbx, %rdi
  mov -120(%rsi), %rdx
  mov %r8d, %ecx
  call agent_child_handshake
  pop %rsp
  movq $0, (%rbx)
  mov %eax, %ebx
  mov CFG(CT_CFG_RING), %rdi
  cmpl $0, CT_RING_HANDSHAKES_WAITING(%rdi)
  je 2f
  add $CT_RING_HANDSHAKE_DOORBELL, %rdi
  lock incl (%rdi)
  mov $1, %esi /* FUTEX_WAKE, one */
  mov $1, %edx
  mov $SYS_futex, %eax
  syscall
2:
  test %ebx, %ebx
  jnz who

turn_off:
  mov CFG(CT_CFG_PAGE_OFF), %rdi
  SET_GS
  movq $CT_VERDICT_SKIP, -96(%rsp)

unblock:
  mov $SYS_rt_sigprocmask, %eax
  mov $2, %edi /* SIG_SETMASK */
  lea -88(%rsp), %rsi
  xor %edx, %edx
  mov $8, %r10d
  syscall
  cmpq $CT_VERDICT_RETRY, -96(%rsp)
  je leave

leave_skip:
  mov -112(%rsp), %rcx
  mov %rcx, -104(%rsp)
  mov -120(%rsp), %r11
  cmpb $CT_HOOK_ENTER, CT_DESC_MODE(%r11)
  je 1f
  cmpb $CT_HOOK_PASSTHROUGH, CT_DESC_MODE(%r11)
  jne leave
1:
  /* A function that looks at its own return address must find the true one there. */
  mov (%rsp), %rcx
  shr $CT_TABLE_SHIFT, %rcx
  add CFG(CT_CFG_TABLE), %rcx
  cmpb $2, (%rcx)
  jne leave
  mov CFG(CT_CFG_DELTA), %rcx
  mov (%rsp, %rcx), %rcx
  mov %rcx, (%rsp)

leave:
  mov -40(%rsp), %rcx
  mov -48(%rsp), %rsi
  mov -56(%rsp), %rdi
  mov -64(%rsp), %r8
  mov -72(%rsp), %r9
  mov -80(%rsp), %rbx
leave_short:
  mov -8(%rsp), %rax
  mov -16(%rsp), %rdx
  mov -24(%rsp), %r11
  mov -32(%rsp), %r10
  jmp *-104(%rsp)

/*
 * The return address is not the text of a module: r10 = address of its byte in the table.
 * 2, a trampoline: tail call (or a function that does so has jumped to its own entry: no event).
 * 0, JIT code: enter only, because runtimes read the return-address slots of their calls.
 */
  .globl agent_not_module
agent_not_module:
  cmpb $2, (%r10)
  mov CT_DESC_FN(%r11), %r10d
  je 1f
  shl $CT_WORD_FN_SHIFT, %r10d
  or $(CT_FN_POINT_BIT << CT_WORD_FN_SHIFT), %r10d
  jmp 2f
1:
  cmpb $0, CT_DESC_SELF_BRANCH(%r11)
  je 4f
  mov CT_DESC_RET_POINT(%r11), %rax
  cmp %rax, (%rsp)
  je 3f
4:
  cmpb $CT_HOOK_VALUES_DETAIL, CT_DESC_VALUES(%r11)
  je with_detail
  shl $CT_WORD_FN_SHIFT, %r10d
  or $CT_WORD_TAIL, %r10d
2:
  RECORD
  test $CT_WORD_TAIL, %r10d /* a call that has a frame */
  jz 3f
  cmpw $0, CT_DESC_DETAIL_TAIL(%r11)
  je 3f
  mov CT_DESC_RELOCATED(%r11), %rax
  mov %rax, -104(%rsp)
  movzwl CT_DESC_DETAIL_TAIL(%r11), %eax /* the trampoline's own code records arguments, and goes on at r10 */
  add CT_DESC_ENTER(%r11), %rax
  lea leave_short(%rip), %r10
  jmp *%rax
3:
to_relocated:
  mov CT_DESC_RELOCATED(%r11), %rax
  mov %rax, -104(%rsp)
  jmp leave_short
with_detail: /* the trampoline's own code, with registers as they are saved; it goes on in agent_detail_tail */
  movzwl CT_DESC_DETAIL_TAIL(%r11), %eax
  add CT_DESC_ENTER(%r11), %rax
  jmp *%rax

/* The record of a call that has come by a tail jump has been made. */
  .globl agent_detail_tail
agent_detail_tail:
  mov CT_DESC_FN(%r11), %r10d
  shl $CT_WORD_FN_SHIFT, %r10d
  or $CT_WORD_TAIL, %r10d
  RECORD
  jmp to_relocated

/*
 * The record at r10 is to have texts: edx as for agent_read_texts, r11: descriptor, rax: where to go on.
 * What it has saved lies down to -128(%rsp).
 */
  .globl agent_detail_texts
agent_detail_texts:
  lea -80(%rsp), %rsp
  SAVE_FOR_CALL
  mov %rax, 64(%rsp)
  mov %r10, %rdi
  mov %edx, %esi
  mov %r11, %rdx
  call agent_read_texts
  mov 64(%rsp), %rax
  RESTORE_FROM_CALL
  lea 80(%rsp), %rsp
  jmp *%rax

/*
 * No room for a detail record. rax: where to try again, rdx: where to go on without it; what these were, and r11 and r10,
 * is saved.
 */
  .globl agent_detail_full
agent_detail_full:
  mov %rcx, -40(%rsp)
  mov %rax, -104(%rsp)
  mov %rdx, -112(%rsp)
  movq $CT_HALF_DETAIL, -96(%rsp)
  jmp slow_common

/*
 * An enter-only function was reached by a tail jump out of a call-through frame: record it as
 * a tail call, then put the true return address into the return-address slot, since the function reads it.
 */
  .globl agent_restore_ra_slot
agent_restore_ra_slot:
  mov CT_DESC_FN(%r11), %r10d
  shl $CT_WORD_FN_SHIFT, %r10d
  or $CT_WORD_TAIL, %r10d
  RECORD
true_address:
  mov CFG(CT_CFG_DELTA), %rax
  mov (%rsp, %rax), %rax
  mov %rax, (%rsp)
  jmp 3b

/* The same for an excluded function, which has no event of its own: the frame that jumped here ends. */
  .globl agent_restore_passthrough
agent_restore_passthrough:
  mov %rsp, %rax
  sub %gs:CT_GS_STACK_LO, %rax
  cmp %gs:CT_GS_STACK_LEN, %rax
  jae agent_slow_enter
  mov $CT_WORD_TAIL_OUT, %r10d
  RECORD
  jmp true_address

/*
 * A sampled hook under sampling has counted this call down to 0 or below: it is recorded, with the weight of the block
 * of calls whose event it is, and the next block is laid out. Whatever a signal handler does in between, the sum of the
 * weights stays that of the calls: each call takes 1 from the countdown, in one instruction; each event takes a block
 * out of the page and puts another one there, in one; and it adds, in one, what is left of the former and what there
 * is of the latter up to its event.
 */
  .globl agent_sample_due
agent_sample_due:
  mov %rsp, %rax
  sub %gs:CT_GS_STACK_LO, %rax
  cmp %gs:CT_GS_STACK_LEN, %rax
  jae not_counted
  rdtsc
  shl $32, %rdx
  or %rdx, %rax
  mov $16, %edx
  xadd %rdx, %gs:CT_GS_CURSOR
  test $CT_CURSOR_VALID, %edx
  jz not_counted
  mov %rcx, -40(%rsp)
  mov %r11, -120(%rsp)
  mov %rdx, %rcx
  and $-4, %rcx
  mov %rax, (%rcx)
  mov %gs:CT_GS_SAMPLE, %ecx
  imul $CT_DRAW_FACTOR, %gs:CT_GS_DRAW, %r10d
  add $CT_DRAW_STEP, %r10d
  mov %r10d, %gs:CT_GS_DRAW
  shr $24, %r10d
  mov $-1, %r11d
  shl %cl, %r11d
  not %r11d
  and %r11d, %r10d /* calls before the next block's event */
  xor %r10d, %r11d /* and after it */
  shl $32, %rcx
  or %rcx, %r11
  mov %gs:CT_GS_BLOCK, %rax
1:
  cmpxchg %r11, %gs:CT_GS_BLOCK
  jne 1b
  lea 1(%rax, %r10), %r10d
  add %r10d, %gs:CT_GS_COUNTDOWN
  shr $32, %rax
  inc %eax
  shl $(CT_FN_WEIGHT_SHIFT + CT_WORD_FN_SHIFT), %eax
  mov -120(%rsp), %r11
  mov CT_DESC_FN(%r11), %ecx
  or $CT_FN_POINT_BIT, %ecx
  shl $CT_WORD_FN_SHIFT, %ecx
  or %ecx, %eax
  mov %edx, %ecx
  and $CT_WORD_TAG_MASK, %ecx
  or %ecx, %eax
  and $-4, %rdx
  mov %esp, %ecx
  shl $32, %rcx
  or %rcx, %rax
  mov %rax, 8(%rdx)
  mov -40(%rsp), %rcx
  jmp to_relocated

not_counted: /* the slow path counts it, or the trampoline when it is tried again */
  incl %gs:CT_GS_COUNTDOWN
  jmp agent_slow_enter

/*
 * mlockall(flags): with MCL_ONFAULT (4) pages are locked when they are touched. Without it the kernel would fill
 * our reservations, gigabytes that are never used.
 */
  .globl agent_callout_mlockall
agent_callout_mlockall:
  or $4, %edi
  mov CT_DESC_AFTER_CALLOUT(%r11), %rax
  mov %rax, -104(%rsp)
  jmp leave_short

/*
 * syscall(number, ...): what the functions of these names would do.
 */
  .globl agent_callout_syscall
agent_callout_syscall:
  cmp $SYS_execve, %edi
  je agent_callout_request
  cmp $SYS_execveat, %edi
  je agent_callout_request
  cmp $SYS_clone, %edi
  je agent_callout_park
  cmp $SYS_clone3, %edi
  je agent_callout_park
  cmp $SYS_write, %edi
  je write_syscall
  cmp $SYS_writev, %edi
  je write_syscall
  cmp $SYS_mmap, %edi
  je agent_callout_map
  cmp $SYS_munmap, %edi
  je agent_callout_map
  cmp $SYS_mremap, %edi
  je agent_callout_map
  cmp $SYS_mprotect, %edi
  je agent_callout_map
  cmp $SYS_pkey_mprotect, %edi
  je agent_callout_map
  cmp $SYS_madvise, %edi
  je agent_callout_map
  cmp $SYS_seccomp, %edi
  je watch_syscall
  cmp $SYS_prctl, %edi
  je watch_syscall
  cmp $SYS_getrlimit, %edi
  je watch_syscall
  cmp $SYS_setrlimit, %edi
  je watch_syscall
  cmp $SYS_prlimit64, %edi
  je watch_syscall
  cmp $SYS_arch_prctl, %edi
  je arch_prctl_syscall
  cmp $SYS_rt_sigaction, %edi
  jne leave_callout
watch_syscall:
  mov $CT_WATCH_SYSCALL, %eax
  jmp watch
arch_prctl_syscall:
  cmp $ARCH_SET_GS, %esi
  je agent_callout_gs
  jmp leave_callout
write_syscall: /* syscall(number, rsi = descriptor, rdx = buffer, rcx = bytes) */
  xor %eax, %eax
  cmp $SYS_write, %edi
  je 1f
  inc %eax
1:
  SAVE_FOR_CALL
  mov %rsi, %rdi
  mov %rdx, %rsi
  mov %rcx, %rdx
  mov %eax, %ecx
  call agent_capture
  RESTORE_FROM_CALL
  jmp leave_callout

/* arch_prctl(rdi = code, rsi = address) */
  .globl agent_callout_arch_prctl
agent_callout_arch_prctl:
  cmp $ARCH_SET_GS, %edi
  jne leave_callout

/* The base of gs is about to be set: the hooks go before. */
  .globl agent_callout_gs
agent_callout_gs:
  SAVE_FOR_CALL
  xor %edi, %edi
  call agent_leave
  RESTORE_FROM_CALL
  jmp leave_callout

/*
 * A call that would map over what hooks cannot do without. The controller takes all out, our code too, and has this
 * thread go on at the function's own entry, with the registers in the frame (struct ct_leave_frame).
 */
#define LEAVE_BYTES 264
leave_for_mapping:
  sub $LEAVE_BYTES, %rsp
  mov LEAVE_BYTES-8(%rsp), %rax
  mov %rax, 0(%rsp)
  mov %rdx, 8(%rsp)
  mov %rcx, 16(%rsp)
  mov %rbx, 24(%rsp)
  mov %rsi, 32(%rsp)
  mov %rdi, 40(%rsp)
  mov %rbp, 48(%rsp)
  lea LEAVE_BYTES(%rsp), %rax
  mov %rax, 56(%rsp)
  mov %r8, 64(%rsp)
  mov %r9, 72(%rsp)
  mov LEAVE_BYTES-32(%rsp), %rax
  mov %rax, 80(%rsp) /* r10 */
  mov LEAVE_BYTES-24(%rsp), %rax
  mov %rax, 88(%rsp) /* r11 */
  mov %r12, 96(%rsp)
  mov %r13, 104(%rsp)
  mov %r14, 112(%rsp)
  mov %r15, 120(%rsp)
  mov CT_DESC_FUNCTION(%r11), %rax
  mov %rax, 128(%rsp) /* rip */
  mov %r11, %rbx
  mov %rsp, %rdi
  call agent_leave
  mov %rbx, %r11 /* nobody has answered, and the hooks are out for all that */
  mov 8(%rsp), %rdx
  mov 16(%rsp), %rcx
  mov 24(%rsp), %rbx
  mov 32(%rsp), %rsi
  mov 40(%rsp), %rdi
  mov 64(%rsp), %r8
  mov 72(%rsp), %r9
  add $LEAVE_BYTES, %rsp
  jmp leave_callout

/* The same of Go's runtime: the number is in rax. */
  .globl agent_callout_go_syscall
agent_callout_go_syscall:
  cmpq $SYS_execve, -8(%rsp)
  je agent_callout_request
  jmp leave_callout

/* prctl(rdi = option, ...) */
  .globl agent_callout_seccomp
agent_callout_seccomp:
  mov $CT_WATCH_PRCTL, %eax
  jmp watch

/* sigaction(rdi = signal, rsi = action, rdx = old) */
  .globl agent_callout_sigaction
agent_callout_sigaction:
  mov $CT_WATCH_SIGACTION, %eax

/*
 * eax: what the function does (CT_WATCH_...). Where agent_watch says so it is called from here, on the caller's stack,
 * and agent_watched gets its result; to its caller it is as if it had returned. Arguments on the stack would not be
 * found. In the frame, struct agent_watch; above it what the trampoline has saved, at WATCH_BYTES - 8(%rsp) and below.
 */
#define WATCH_BYTES 248
  .macro save_arguments
  mov %rdi, 0(%rsp)
  mov %rsi, 8(%rsp)
  mov %rdx, 16(%rsp)
  mov %rcx, 24(%rsp)
  mov %r8, 32(%rsp)
  mov %r9, 40(%rsp)
  .endm
  .macro restore_arguments
  mov 0(%rsp), %rdi
  mov 8(%rsp), %rsi
  mov 16(%rsp), %rdx
  mov 24(%rsp), %rcx
  mov 32(%rsp), %r8
  mov 40(%rsp), %r9
  .endm
watch:
  sub $WATCH_BYTES, %rsp
  save_arguments
  mov %rax, 48(%rsp)
  mov %r11, 56(%rsp)
  mov %rsp, %rdi
  call agent_watch
  restore_arguments
  mov 56(%rsp), %r11
  test %eax, %eax
  jnz 1f
  add $WATCH_BYTES, %rsp
  jmp leave_callout
1:
  mov CT_DESC_AFTER_CALLOUT(%r11), %rax
  mov %rax, 56(%rsp)
  mov WATCH_BYTES-8(%rsp), %rax
  mov WATCH_BYTES-24(%rsp), %r11
  mov WATCH_BYTES-32(%rsp), %r10
  call *56(%rsp)
agent_watch_back:
  movq $0, -8(%rsp) /* so that the return address is on a stack only while somebody will return to it */
  save_arguments
  mov %r10, 48(%rsp)
  mov %r11, 56(%rsp)
  mov %rax, 64(%rsp)
  mov %rsp, %rdi
  call agent_watched
  restore_arguments
  mov 48(%rsp), %r10
  mov 56(%rsp), %r11
  mov 64(%rsp), %rax
  add $WATCH_BYTES, %rsp
  ret

/* The function is about to clone: park gs, so that the child finds no page of another thread there. */
  .globl agent_callout_park
agent_callout_park:
  cmpl $CT_MODE_ON, %gs:CT_GS_MODE
  je 3f
  cmpl $CT_MODE_NO_SLOT, %gs:CT_GS_MODE /* the child may be one that is followed */
  jne leave_callout
3:
  mov %rcx, -40(%rsp)
  mov %rsi, -48(%rsp)
  mov %rdi, -56(%rsp)
  mov %r11, -120(%rsp)
  cmpl $0, %gs:CT_GS_SILENT
  movl $1, %gs:CT_GS_PARKED
  mov CFG(CT_CFG_RING), %rdi
  jne 1f
  lock incl CT_RING_FORKS(%rdi)
  mov CFG(CT_CFG_PAGE_LOOKUP), %rdi
  jmp 2f
1: /* neither can ask for a page */
  lock incl CT_RING_FORKS(%rdi)
  lea agent_page_silent(%rip), %rdi
2:
  SET_GS
  mov -40(%rsp), %rcx
  mov -48(%rsp), %rsi
  mov -56(%rsp), %rdi
  mov -120(%rsp), %r11
leave_callout:
  mov CT_DESC_AFTER_CALLOUT(%r11), %rax
  mov %rax, -104(%rsp)
  jmp leave_short

/* write(rdi = descriptor, rsi = buffer, rdx = bytes), and writev: what goes to standard output and error is copied. */
  .globl agent_callout_writev
agent_callout_writev:
  mov $1, %eax
  jmp 1f
  .globl agent_callout_write
agent_callout_write:
  xor %eax, %eax
1:
  cmp $2, %edi
  ja leave_callout
  SAVE_FOR_CALL
  mov %eax, %ecx
  call agent_capture
  RESTORE_FROM_CALL
  jmp leave_callout

/* Lets a C function of ours answer for the hooked one, or that itself. Runs on the caller's stack. */
  .macro ANSWER function
  sub $184, %rsp
  mov %rdi, 0(%rsp)
  mov %rsi, 8(%rsp)
  mov %rcx, 16(%rsp)
  mov %r8, 24(%rsp)
  mov %r9, 32(%rsp)
  mov %r11, 40(%rsp)
  mov %r11, %rdx
  call \function
  jmp answered
  .endm

/* dl_iterate_phdr(rdi = callback, rsi = data). To an unwinder regions are modules too. */
  .globl agent_callout_modules
agent_callout_modules:
  ANSWER agent_modules

/* _dl_find_object(rdi = pc, rsi = result). To an unwinder that is not hooked regions are objects. */
  .globl agent_callout_find_object
agent_callout_find_object:
  ANSWER agent_find_object

/*
 * _Unwind_Find_FDE(rdi = pc, rsi = bases). Answers for addresses in trampolines, lets the function
 * itself answer for all others. The unwinder has room on its stack.
 */
  .globl agent_callout_find_fde
agent_callout_find_fde:
  ANSWER agent_find_fde
answered: /* rax: what to return, or CT_NOT_OURS */
  mov 0(%rsp), %rdi
  mov 8(%rsp), %rsi
  mov 16(%rsp), %rcx
  mov 24(%rsp), %r8
  mov 32(%rsp), %r9
  mov 40(%rsp), %r11
  add $184, %rsp
  cmp $CT_NOT_OURS, %rax
  je leave_callout
  mov -16(%rsp), %rdx
  mov -24(%rsp), %r11
  mov -32(%rsp), %r10
  ret

  .section .note.GNU-stack, "", @progbits
