/* SPDX-License-Identifier: MIT */
/* Offsets and values of ring/layout.h that assembly and the emitter use; layout.h asserts each. */
#ifndef CT_RING_OFFSETS_H
#define CT_RING_OFFSETS_H

/* struct ct_control, relative to gs */
#define CT_GS_CURSOR    0
#define CT_GS_STACK_LO  16
#define CT_GS_STACK_LEN 24
#define CT_GS_TABLE     32
#define CT_GS_COUNTDOWN 40 /* with CT_GS_SAMPLE one 64-bit word, see struct ct_control */
#define CT_GS_SAMPLE    44
#define CT_GS_MAGIC     48
#define CT_GS_MODE      56
#define CT_GS_TID       60
#define CT_GS_AGENT_SP  64
#define CT_GS_SLOT      72
#define CT_GS_PARKED    76
#define CT_GS_BUSY      92
#define CT_GS_DRAW      116
#define CT_GS_BLOCK     120

/* Drawing by lot: x = x * FACTOR + STEP mod 2^32, the upper 8 bits count (Numerical Recipes, 7.1: ranqd1). */
#define CT_DRAW_FACTOR 1664525
#define CT_DRAW_STEP   1013904223

/* struct ct_hook_desc */
#define CT_DESC_ENTER         0
#define CT_DESC_RELOCATED     8
#define CT_DESC_RET           16
#define CT_DESC_RET_DONE      24
#define CT_DESC_RET_POINT     32
#define CT_DESC_FN            48
#define CT_DESC_MODE          52
#define CT_DESC_CALLOUT       53
#define CT_DESC_SELF_BRANCH   55
#define CT_DESC_AFTER_CALLOUT 64
#define CT_DESC_VALUES        88

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
#define CT_CFG_VISITORS      88

/* struct ct_visitor */
#define CT_VISITOR_COUNT 64
#define CT_VISITOR_BYTES 4096
#define CT_VISITOR_TAKEN 1
/* In the first control page, behind struct ct_control: not 0 in a process that has the page itself, or shares it. */
#define CT_CONTROL_OWN 4088

/* struct ct_ring_header */
#define CT_RING_FORKS           104
#define CT_RING_DROPPED_NO_SLOT 200

/* enum ct_control_mode */
#define CT_MODE_NONE   0
#define CT_MODE_ON     1
#define CT_MODE_LOOKUP 2
#define CT_MODE_OFF    3

/* enum ct_hook_mode */
#define CT_HOOK_FULL  0
#define CT_HOOK_ENTER 1
#define CT_HOOK_LIGHT 2
#define CT_HOOK_QUIET 3
#define CT_HOOK_LOOSE 4

#define CT_SLOT_COUNT      4096
#define CT_CONTROL_STRIDE  16384 /* control page, then the agent's stack for the thread */
#define CT_CONTROL_SHIFT   14
#define CT_TABLE_SHIFT     16
#define CT_FN_POINT_BIT    0x8000000
#define CT_FN_WEIGHT_SHIFT 23
#define CT_WORD_TAG_MASK   3
#define CT_WORD_FN_SHIFT   4
#define CT_WORD_ENTER      (1 << 2)
#define CT_WORD_TAIL       (2 << 2)
#define CT_WORD_RETURN     (3 << 2)
#define CT_WORD_TAIL_OUT   (2 << CT_WORD_FN_SHIFT) /* CT_KIND_OTHER, CT_OTHER_TAIL_OUT */
#define CT_WORD_ARG_1      (5 << CT_WORD_FN_SHIFT)
#define CT_WORD_ARG_2      (6 << CT_WORD_FN_SHIFT)
#define CT_WORD_RESULT     (7 << CT_WORD_FN_SHIFT)

/* The bit that is set in the addresses of all places of all segments, and not in those behind a segment. */
#define CT_CURSOR_VALID 0x10000

/* What the agent's C code answers to its entry stubs. CT_NOT_OURS is no address and no int. */
#define CT_NOT_OURS      (-0x7fffffff)
#define CT_VERDICT_RETRY 0
#define CT_VERDICT_SKIP  1

#endif
