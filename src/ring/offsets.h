/* SPDX-License-Identifier: MIT */
/* Offsets and values of ring/layout.h that assembly and the emitter use; layout.h asserts each. */
#ifndef CT_RING_OFFSETS_H
#define CT_RING_OFFSETS_H

/* struct ct_control_page, relative to gs */
#define CT_GS_CURSOR        0
#define CT_GS_STACK_LO      16
#define CT_GS_STACK_LEN     24
#define CT_GS_TABLE         32
#define CT_GS_COUNTDOWN     40 /* with CT_GS_SAMPLE one 64-bit word, see struct ct_control_page */
#define CT_GS_SAMPLE        44
#define CT_GS_MAGIC         48
#define CT_GS_MODE          56
#define CT_GS_TID           60
#define CT_GS_AGENT_SP      64
#define CT_GS_SLOT          72
#define CT_GS_PARKED        76
#define CT_GS_BUSY          92
#define CT_GS_CONTEXT       112
#define CT_GS_DRAW          116
#define CT_GS_BLOCK         120
#define CT_GS_MISTAKABLE    128
#define CT_GS_SILENT        132
#define CT_GS_COPIES        140
#define CT_GS_HOOKED_LO     144
#define CT_GS_HOOKED_LEN    152
#define CT_GS_STACK_HI      160
#define CT_GS_DETAIL_CURSOR 184
#define CT_GS_BUSY_SKIPS    204
#define CT_GS_COUNTERS      208
#define CT_GS_DETAIL_TAG    240

/* A copy of fewer bytes to or from a stack is none of a stack. */
#define CT_COPY_BYTES_MIN 64

/* Drawing by lot: x = x * FACTOR + STEP mod 2^32, the upper 8 bits count (Numerical Recipes, 7.1: ranqd1). */
#define CT_DRAW_FACTOR 1664525
#define CT_DRAW_STEP   1013904223

/* struct ct_hook_desc */
#define CT_DESC_ENTER         0
#define CT_DESC_RELOCATED     8
#define CT_DESC_RET           16
#define CT_DESC_RET_DONE      24
#define CT_DESC_RET_POINT     32
#define CT_DESC_FUNCTION      40
#define CT_DESC_FN            48
#define CT_DESC_MODE          52
#define CT_DESC_CALLOUT       53
#define CT_DESC_SELF_BRANCH   55
#define CT_DESC_AFTER_CALLOUT 64
#define CT_DESC_VALUES        88
#define CT_DESC_ITRACE        89
#define CT_DESC_DETAIL_TAIL   90

/* How calls of a function are recorded under a budget: struct ct_gate. */
#define CT_LEVEL_FULL     0
#define CT_LEVEL_COUNTING 1 /* by the thread's counters; those that the mask finds are recorded too */
#define CT_LEVEL_OUT      2 /* not at all */
/* The mask of hooks that begin: of 64 calls one is recorded. */
#define CT_LEVEL_MASK_FIRST 63

/* struct ct_agent_config */
#define CT_CFG_RING          0
#define CT_CFG_TIDS          8
#define CT_CFG_CONTROLS      16
#define CT_CFG_TABLE         24
#define CT_CFG_DELTA         32
#define CT_CFG_PID           40
#define CT_CFG_WRGSBASE      44
#define CT_CFG_PAGE_OFF      48
#define CT_CFG_PAGE_LOOKUP   56
#define CT_CFG_SIGNAL_MASK   64
#define CT_CFG_NO_SYSCALLS   72
#define CT_CFG_CRASH_SIGNALS 84
#define CT_CFG_HANDSHAKES    88
#define CT_CFG_STACKS        96
#define CT_CFG_TASKS_RAISED  108

/* struct ct_handshake */
#define CT_HANDSHAKE_COUNT 64
#define CT_HANDSHAKE_BYTES 4096
#define CT_HANDSHAKE_TAKEN 1
/* In the first control page, after struct ct_control_page: not 0 in a process that has the page itself, or shares it.
 */
#define CT_CONTROL_OWN 4088

/* struct ct_ring_header */
#define CT_RING_FORKS              104
#define CT_RING_DROPPED_NO_SLOT    200
#define CT_RING_HANDSHAKE_DOORBELL 216
#define CT_RING_HANDSHAKES_WAITING 220
#define CT_RING_SLOTS_FREED        232
#define CT_RING_ITRACE             2480
#define CT_ITRACE_PROBE_SHIFT      4

/* enum ct_control_mode */
#define CT_MODE_NONE    0
#define CT_MODE_ON      1
#define CT_MODE_LOOKUP  2
#define CT_MODE_OFF     3
#define CT_MODE_NO_SLOT 4 /* every slot is taken: as LOOKUP, but the look is made when one has been given back */

/* enum ct_hook_mode */
#define CT_HOOK_FULL        0 /* called through: enter and return */
#define CT_HOOK_ENTER       1 /* enter only: the function touches its own slot; a trampoline's address is taken out */
#define CT_HOOK_SAMPLED     2 /* enter only by request (the user's word is light), perhaps sampled */
#define CT_HOOK_PASSTHROUGH 3 /* no event: excluded, and needs its callout, or what CT_HOOK_ENTER does to the slot */
#define CT_HOOK_STACKLESS   4 /* enter only, on stacks that a runtime manages itself; open frames are not considered */

/* struct ct_stack_map and struct ct_stack, ring/stacks.h */
#define CT_STACK_SHIFT    6
#define CT_STACK_HI       8
#define CT_STACK_STATE    16
#define CT_STACK_OWNER    20
#define CT_STACK_CONTEXT  24
#define CT_STACK_IS_READY 1
#define CT_MAP_STACKS     0x41000
#define CT_MAP_NODES      0xcc1000

#define CT_SLOT_COUNT       4096
#define CT_CONTROL_STRIDE   16384 /* control page, then the agent's stack for the thread */
#define CT_CONTROL_SHIFT    14
#define CT_TABLE_SHIFT      16
#define CT_FN_POINT_BIT     0x8000000
#define CT_FN_WEIGHT_SHIFT  23
#define CT_WORD_TAG_MASK    3
#define CT_WORD_FN_SHIFT    4
#define CT_WORD_ENTER       (1 << 2)
#define CT_WORD_TAIL        (2 << 2)
#define CT_WORD_RETURN      (3 << 2)
#define CT_WORD_TAIL_OUT    (2 << CT_WORD_FN_SHIFT) /* CT_KIND_OTHER, CT_OTHER_TAIL_OUT */
#define CT_WORD_SWITCH      (1 << CT_WORD_FN_SHIFT)
#define CT_WORD_STACK       (3 << CT_WORD_FN_SHIFT)
#define CT_WORD_ARG_1       (5 << CT_WORD_FN_SHIFT)
#define CT_WORD_ARG_2       (6 << CT_WORD_FN_SHIFT)
#define CT_WORD_RESULT      (7 << CT_WORD_FN_SHIFT)
#define CT_WORD_DETAIL      (12 << CT_WORD_FN_SHIFT)
#define CT_WORD_VALUE       (13 << CT_WORD_FN_SHIFT) /* and which, from CT_WORD_VALUE_SHIFT on */
#define CT_WORD_VALUE_SHIFT 8

/* Which value it is: the numbers of enum ct_value, after which N counts. Less than 8 are those with words of their own.
 */
#define CT_RING_VALUE_INTEGER  8  /* rdi rsi rdx rcx r8 r9; of which rdi and rsi have CT_WORD_ARG_1 and 2 */
#define CT_RING_VALUE_VECTOR   16 /* the low half of xmm0 .. xmm7 */
#define CT_RING_VALUE_RESULT_2 24 /* rdx; rax has CT_WORD_RESULT */
#define CT_RING_VALUE_XMM0     25
#define CT_RING_VALUE_XMM1     26
#define CT_RING_VALUE_ERROR    27 /* errno, after a result of -1 */
#define CT_RING_VALUE_STACK    32 /* words above the return-address slot */

/* What a call-through trampoline records of a call besides its enter and return: struct ct_hook_desc. */
#define CT_HOOK_VALUES_NONE   0
#define CT_HOOK_VALUES_FEW    1 /* what struct ct_values_form says, in the ring of events */
#define CT_HOOK_VALUES_DETAIL 2 /* struct ct_detail_enter and ct_detail_return, in the detail lane */

/* The bit that is set in the addresses of all entries of all segments, and not in those after a segment. */
#define CT_CURSOR_VALID 0x10000

/* What a function whose call is looked at does (agent/watch.c). */
#define CT_WATCH_SIGACTION 0
#define CT_WATCH_PRCTL     1
#define CT_WATCH_SYSCALL   2

/* What the agent's C code answers to its entry stubs. CT_NOT_OURS is no address and no int. */
#define CT_NOT_OURS (-0x7fffffff)
/* Which half of a trampoline, or which callout, the slow path is for. */
#define CT_HALF_ENTER   0
#define CT_HALF_RETURN  1
#define CT_HALF_REQUEST 2
#define CT_HALF_LONGJMP 3
#define CT_HALF_COPY    4
#define CT_HALF_MOVE    5
#define CT_HALF_REMAP   6
#define CT_HALF_FRAMES  8  /* the function reads slots of frames further out, by rbp */
#define CT_HALF_MAP     7  /* mmap and the like: perhaps over something of ours */
#define CT_HALF_DETAIL  9  /* no room for a detail record */
#define CT_HALF_ITRACE  10 /* the call is to be recorded as instructions, perhaps */

/* Of so many frames further out the slots are put right for a function that reads them. */
#define CT_FRAMES_READ 64

/* What a change of mappings concerns (agent/remap.c). */
#define CT_CONCERNS_NOTHING 0
#define CT_CONCERNS_STACKS  1 /* stacks and their stores, which are moved aside */
#define CT_CONCERNS_OURS    2 /* what hooks cannot do without */

#define CT_VERDICT_RETRY 0
#define CT_VERDICT_SKIP  1

#endif
