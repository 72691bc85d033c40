/* SPDX-License-Identifier: MIT */
/*
 * The agent's entry stubs. Trampolines jump here from their cold parts.
 *
 * On entry rsp is S, the address of the frame's return-address slot, and r11 points to the
 * trampoline's descriptor. Everything is kept in the 128 bytes below rsp, which a signal handler
 * leaves alone, until the stub has switched to the thread's own agent stack:
 *
 *     -8 rax   -16 rdx   -24 r11   -32 r10   -40 rcx   -48 rsi   -56 rdi   -64 r8
 *    -72 r9    -80 rbx   -88 signal mask     -96 half (0 enter, 1 return, 2, 3 callouts)
 *   -104 where to go on (retry, and the stubs' way out)     -112 where to go on (skip)     -120 descriptor
 *
 * rax, rdx, r11 are stored by the trampoline, r10 too in the enter half. All signals are blocked
 * while the agent's stack is in use. No stub touches a vector register, x87 or mxcsr.
 */
#include "ring/offsets.h"

#define SYS_write          1
#define SYS_rt_sigaction   13
#define SYS_rt_sigprocmask 14
#define SYS_rt_sigreturn   15
#define SYS_writev         20
#define SYS_getpid         39
#define SYS_arch_prctl     158
#define SYS_gettid         186
#define SYS_tgkill         234
#define SYS_clone          56
#define SYS_execve         59
#define SYS_prctl          157
#define SYS_seccomp        317
#define SYS_execveat       322
#define SYS_clone3         435
#define ARCH_SET_GS        0x1001
#define PR_SET_SECCOMP     22
#define PR_SET_TSC         26
#define SECCOMP_MODE_STRICT 1

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
  .long agent_callout_park - agent_base
  .long agent_callout_request - agent_base
  .long agent_callout_find_fde - agent_base
  .long agent_restore_slot - agent_base
  .long agent_callout_seccomp - agent_base
  .long agent_callout_mlockall - agent_base
  .long agent_trap - agent_base
  .long agent_restorer - agent_base
  .long agent_restore_quiet - agent_base
  .long agent_callout_syscall - agent_base
  .long agent_callout_go_syscall - agent_base
  .long agent_callout_modules - agent_base
  .long agent_callout_find_object - agent_base
  .long agent_callout_longjmp - agent_base
  .long agent_light_due - agent_base
  .long agent_callout_sigaction - agent_base
  .long agent_callout_write - agent_base
  .long agent_callout_writev - agent_base
  .long agent_crash - agent_base
  .long agent_sigaction_back - agent_base
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

/* Appends the value of a register, with the word's upper part, unless there is no room. Clobbers rax, rdx. */
  .macro RECORD_VALUE register, word
  mov $16, %edx
  xadd %rdx, %gs:CT_GS_CURSOR
  test $CT_CURSOR_VALID, %edx
  jz 81f
  mov %edx, %eax
  and $CT_WORD_TAG_MASK, %eax
  and $-4, %rdx
  mov \register, (%rdx)
  or $\word, %eax
  mov %eax, -40(%rsp)
  mov %esp, -36(%rsp)
  mov -40(%rsp), %rax
  mov %rax, 8(%rdx)
81:
  .endm

  .globl agent_slow_enter
agent_slow_enter:
  mov %rcx, -40(%rsp)
  mov CT_DESC_ENTER(%r11), %rcx
  mov %rcx, -104(%rsp)
  mov CT_DESC_RELOCATED(%r11), %rcx
  mov %rcx, -112(%rsp)
  movq $0, -96(%rsp)
  jmp slow_common

  .globl agent_slow_return
agent_slow_return:
  mov %r10, -32(%rsp)
  mov %rcx, -40(%rsp)
  mov CT_DESC_RET(%r11), %rcx
  mov %rcx, -104(%rsp)
  mov CT_DESC_RET_DONE(%r11), %rcx
  mov %rcx, -112(%rsp)
  movq $1, -96(%rsp)
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

/* Requests to the controller: the displaced instructions follow whatever the outcome. */
  .globl agent_callout_request
agent_callout_request:
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
  cmpl $CT_MODE_OFF, %gs:CT_GS_MODE
  je off
  cmpl $0, CFG(CT_CFG_NO_SYSCALLS)
  jne no_syscalls

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
  mov %rsp, %rsi
  lea CT_CONTROL_STRIDE(%rdi), %rsp
  push %rsi
  push %rsi
  mov -120(%rsi), %rdx
  mov -96(%rsi), %ecx
  call agent_slow_path
  pop %rsp
  mov %rax, -96(%rsp)
  movl $0, %gs:CT_GS_BUSY
  cmpl $0, CFG(CT_CFG_NO_SYSCALLS)
  je unblock
  cmpq $CT_VERDICT_RETRY, -96(%rsp)
  je leave
  jmp leave_skip

/* The target is about to be, or is, under a seccomp filter: any system call of ours might kill it. */
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
  jmp on_agent_stack

/* Nobody records by this page. Its cursor must not be counted up to an address that looks like one. */
off:
  cmpq $2, -96(%rsp)
  jne 1f
  cmpq $0, CFG(CT_CFG_VISITORS)
  je 1f
  cmpl $0, CFG(CT_CFG_NO_SYSCALLS)
  je block /* an exec, perhaps of a child that shares our memory */
1:
  movq $0, %gs:CT_GS_CURSOR
  jmp leave_skip

/* We are a handler that has interrupted the agent: until that goes on, nobody takes the cursor back when it is behind
 * the segment's end, so it stays there. */
busy:
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
  jne 1f
  movq $0, %gs:CT_GS_CURSOR /* as in `off` */
1:
  mov $SYS_getpid, %eax
  syscall
  cmp CFG(CT_CFG_PID), %eax
  jne stranger
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
  mov %ecx, %ebx
  mov $CT_SLOT_COUNT, %r9d
4: /* one of a thread that is dead */
  mov CFG(CT_CFG_PID), %edi
  mov (%r10, %rbx, 4), %esi
  xor %edx, %edx
  mov $SYS_tgkill, %eax
  syscall
  cmp $-3, %eax /* ESRCH */
  jne 5f
  mov %esi, %eax
  lock cmpxchg %r8d, (%r10, %rbx, 4)
  mov %ebx, %ecx
  je slot_found
5:
  inc %ebx
  and $(CT_SLOT_COUNT - 1), %ebx
  dec %r9d
  jnz 4b
  mov CFG(CT_CFG_RING), %rcx
  lock incq CT_RING_DROPPED_NO_SLOT(%rcx)
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
  mov CFG(CT_CFG_VISITORS), %rbx
  test %rbx, %rbx
  jz turn_off
  mov CFG(CT_CFG_CONTROLS), %rcx
  cmpq $0, CT_CONTROL_OWN(%rcx)
  je 1f
  cmpq $2, -96(%rsp)
  jne turn_off
1:
  mov %eax, %esi
  shl $32, %rsi
  or $CT_VISITOR_TAKEN, %rsi
  mov $CT_VISITOR_COUNT, %r9d
2:
  xor %eax, %eax
  cmp %rax, (%rbx)
  jne 3f
  lock cmpxchg %rsi, (%rbx)
  je 4f
3:
  add $CT_VISITOR_BYTES, %rbx
  dec %r9d
  jnz 2b
  jmp turn_off
4:
  mov %rsp, %rsi
  lea CT_VISITOR_BYTES(%rbx), %rsp
  push %rsi
  push %rsi
  mov %rbx, %rdi
  mov -120(%rsi), %rdx
  mov %r8d, %ecx
  call agent_visit
  pop %rsp
  movq $0, (%rbx)
  test %eax, %eax
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
  cmpb $CT_HOOK_QUIET, CT_DESC_MODE(%r11)
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
 * 0, JIT code: enter only, because runtimes read the slots of their calls out.
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
  shl $CT_WORD_FN_SHIFT, %r10d
  or $CT_WORD_TAIL, %r10d
2:
  RECORD
  test $CT_WORD_TAIL, %r10d /* a call that has a frame */
  jz 3f
  cmpb $0, CT_DESC_VALUES(%r11)
  je 3f
  RECORD_VALUE %rdi, CT_WORD_ARG_1
  RECORD_VALUE %rsi, CT_WORD_ARG_2
3:
to_relocated:
  mov CT_DESC_RELOCATED(%r11), %rax
  mov %rax, -104(%rsp)
  jmp leave_short

/*
 * An enter-only function was reached by a tail jump out of a call-through frame: record it as
 * a tail call, then put the true return address into the slot, since the function reads it.
 */
  .globl agent_restore_slot
agent_restore_slot:
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
  .globl agent_restore_quiet
agent_restore_quiet:
  mov %rsp, %rax
  sub %gs:CT_GS_STACK_LO, %rax
  cmp %gs:CT_GS_STACK_LEN, %rax
  jae agent_slow_enter
  mov $CT_WORD_TAIL_OUT, %r10d
  RECORD
  jmp true_address

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

/* Takes the handlers of fatal signals away. */
  .macro WITHDRAW
  SAVE_FOR_CALL
  call agent_crash_withdraw
  RESTORE_FROM_CALL
  .endm

/*
 * A light hook under sampling has counted this call down to 0 or below: it is recorded, with the weight of the block of
 * calls whose event it is, and the next block is laid out. Whatever a signal handler does in between, the sum of the
 * weights stays that of the calls: each call takes 1 from the countdown, in one instruction; each event takes a block
 * out of the page and puts another one there, in one; and it adds, in one, what is left of the former and what there
 * is of the latter up to its event.
 */
  .globl agent_light_due
agent_light_due:
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
  xor %r10d, %r11d /* and behind it */
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
  cmp $SYS_seccomp, %edi
  je 1f
  cmp $SYS_rt_sigaction, %edi
  je sigaction_syscall
  cmp $SYS_write, %edi
  je write_syscall
  cmp $SYS_writev, %edi
  je write_syscall
  cmp $SYS_prctl, %edi
  jne leave_callout
  cmp $PR_SET_TSC, %esi
  je thread_off
  cmp $PR_SET_SECCOMP, %esi
  jne leave_callout
  cmp $SECCOMP_MODE_STRICT, %edx
  je thread_off
  jmp no_more_syscalls
1:
  test %esi, %esi /* SECCOMP_SET_MODE_STRICT */
  je thread_off
  jmp no_more_syscalls
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
  call agent_print
  RESTORE_FROM_CALL
  jmp leave_callout
sigaction_syscall: /* syscall(number, rsi = signal, rdx = action, rcx = old action, 8) */
  cmp $31, %esi
  ja leave_callout
  bt %esi, CFG(CT_CFG_CRASH_SIGNALS)
  jnc leave_callout
  sub $184, %rsp
  mov %rsi, (%rsp)
  mov %rcx, 8(%rsp)
  movq $1, 16(%rsp)
  jmp sigaction_common

/* The same of Go's runtime: the number is in rax. */
  .globl agent_callout_go_syscall
agent_callout_go_syscall:
  cmpq $SYS_execve, -8(%rsp)
  je agent_callout_request
  jmp leave_callout

/*
 * prctl(option, value): what is coming may forbid things that hooks do. A seccomp filter: no system calls of ours from
 * here on. Strict mode, PR_SET_TSC: the kernel forbids rdtsc to this thread too: it is recorded no more.
 */
  .globl agent_callout_seccomp
agent_callout_seccomp:
  cmp $PR_SET_TSC, %edi
  je thread_off
  cmp $PR_SET_SECCOMP, %edi
  jne leave_callout
  cmp $SECCOMP_MODE_STRICT, %esi
  je thread_off
no_more_syscalls:
  WITHDRAW
  movl $1, CFG(CT_CFG_NO_SYSCALLS)
  jmp leave_callout
thread_off:
  WITHDRAW
  mov %rcx, -40(%rsp)
  mov %rsi, -48(%rsp)
  mov %rdi, -56(%rsp)
  mov %r11, -120(%rsp)
  mov CFG(CT_CFG_PAGE_OFF), %rdi
  jmp leave_with_gs

/* The function is about to clone: park gs, so that the child finds no page of another thread there. */
  .globl agent_callout_park
agent_callout_park:
  cmpl $CT_MODE_ON, %gs:CT_GS_MODE
  jne leave_callout
  mov %rcx, -40(%rsp)
  mov %rsi, -48(%rsp)
  mov %rdi, -56(%rsp)
  mov %r11, -120(%rsp)
  movl $1, %gs:CT_GS_PARKED
  mov CFG(CT_CFG_RING), %rdi
  lock incl CT_RING_FORKS(%rdi)
  mov CFG(CT_CFG_PAGE_LOOKUP), %rdi
leave_with_gs: /* rcx, rsi, rdi and the descriptor are saved */
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
  call agent_print
  RESTORE_FROM_CALL
  jmp leave_callout

/*
 * sigaction(rdi = signal, rsi = action, rdx = old): the function itself, called from here, on the caller's stack; then
 * what it has told of a signal that is handled by us is put right. To its caller it is as if it had returned.
 */
  .globl agent_callout_sigaction
agent_callout_sigaction:
  cmp $31, %edi
  ja leave_callout
  bt %edi, CFG(CT_CFG_CRASH_SIGNALS)
  jnc leave_callout
  sub $184, %rsp
  mov %rdi, (%rsp)
  mov %rdx, 8(%rsp)
  movq $0, 16(%rsp)
sigaction_common: /* what the trampoline has saved lies at 184 - 8(%rsp) and below */
  mov CT_DESC_AFTER_CALLOUT(%r11), %rax
  mov %rax, 24(%rsp)
  mov 176(%rsp), %rax
  mov 160(%rsp), %r11
  mov 152(%rsp), %r10
  call *24(%rsp)
agent_sigaction_back:
  movq $0, -8(%rsp) /* so that the return address is on a stack only while somebody will return to it */
  mov %rax, 24(%rsp)
  mov %rcx, 32(%rsp)
  mov %rdx, 40(%rsp)
  mov %rsi, 48(%rsp)
  mov %rdi, 56(%rsp)
  mov %r8, 64(%rsp)
  mov %r9, 72(%rsp)
  mov %r10, 80(%rsp)
  mov %r11, 88(%rsp)
  mov (%rsp), %rdi
  mov 8(%rsp), %rsi
  mov %rax, %rdx
  mov 16(%rsp), %rcx
  call agent_sigaction_done
  mov 24(%rsp), %rax
  mov 32(%rsp), %rcx
  mov 40(%rsp), %rdx
  mov 48(%rsp), %rsi
  mov 56(%rsp), %rdi
  mov 64(%rsp), %r8
  mov 72(%rsp), %r9
  mov 80(%rsp), %r10
  mov 88(%rsp), %r11
  add $184, %rsp
  ret

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
