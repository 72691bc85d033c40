/* SPDX-License-Identifier: MIT */
/* See interrupted.h. */
#include "process/interrupted.h"

#include "base/error.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STACK_SCAN_MAX (8u << 20) /* bytes of a stack that are searched for signal frames */
#define STACKS_MAX     16         /* of one thread, each of which a signal has interrupted ... */
#define FRAMES_MAX     4096       /* ... and frames on them, with those that are left over */
#define FRAME_BYTES    440u       /* of a signal's frame (struct rt_sigframe) ... */
#define FRAME_ALIGN    24u        /* ... and what aligning it may add */
#define UC_FLAGS_MAX   7u         /* UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS */
#define USER_CS        0x33u

int
ct_stopped_add_pc(struct ct_stopped *stopped, uint64_t pc)
{
  uint64_t *grown = realloc(stopped->pcs, (stopped->pc_count + 1) * sizeof(*grown));
  if (grown == NULL) {
    return CT_ENOMEM;
  }
  stopped->pcs = grown;
  stopped->pcs[stopped->pc_count++] = pc;
  return 0;
}

/* The end of the mapping around address, 0 when there is none. */
static uint64_t
mapping_end(const struct ct_mappings *mappings, uint64_t address)
{
  const struct ct_mapping *mapping = ct_mappings_at(mappings, address);
  return mapping != NULL && mapping->readable ? mapping->end : 0;
}

/* Lists may have room to spare: 0 is no address. */
struct ct_restorers
ct_restorers_of(const uint64_t *list, size_t count, int64_t distance)
{
  struct ct_restorers wanted = {list, count, UINT64_MAX, 0, distance};
  for (size_t i = 0; i < count; i++) {
    if (list[i] != 0) {
      wanted.lo = list[i] < wanted.lo ? list[i] : wanted.lo;
      wanted.hi = list[i] > wanted.hi ? list[i] : wanted.hi;
    }
  }
  return wanted;
}

static bool
is_wanted(const struct ct_restorers *wanted, uint64_t word)
{
  if (word < wanted->lo || word > wanted->hi) {
    return false;
  }
  for (size_t i = 0; i < wanted->count; i++) {
    if (word == wanted->list[i]) {
      return true;
    }
  }
  return false;
}

/*
 * As the kernel makes one (struct rt_sigframe): the return address into a restorer, a ucontext, a siginfo; the state of
 * the vector registers begins at the next multiple of 64. What is left over of an older one under a newer one is not
 * like that.
 */
static bool
is_signal_frame(uint64_t at, const ucontext_t *context)
{
  uint64_t state = (uint64_t)context->uc_mcontext.fpregs;
  uint16_t cs = (uint16_t)context->uc_mcontext.gregs[REG_CSGSFS];
  return context->uc_flags <= UC_FLAGS_MAX && cs == USER_CS &&
         (state == 0 || (state % 64 == 0 && state - at >= FRAME_BYTES && state - at < FRAME_BYTES + FRAME_ALIGN));
}

/* The handler returns into a restorer: by itself, or by way of a hook, which keeps its return address elsewhere. */
static bool
returns_to(const struct ct_stopped *stopped, const struct ct_restorers *restorers, uint64_t at, uint64_t word)
{
  int64_t distance = restorers->distance;
  return is_wanted(restorers, word) ||
         (distance != 0 && ct_process_read(stopped->process, at + (uint64_t)distance, &word, sizeof(word)) == 0 &&
          is_wanted(restorers, word));
}

/* Where signals have interrupted a thread: a part of each stack that is looked at, the one that it is on first. */
struct frame_scan {
  struct ct_stopped *stopped;
  const struct ct_mappings *mappings;
  const struct ct_restorers *restorers;
  struct stack_part {
    uint64_t from, end;
  } parts[STACKS_MAX];
  size_t part_count, begun; /* begun: so many of them have been looked at, or are */
  size_t frame_count;
};

/* From there on a stack is looked at, too, as far as it is not: it may lie below another one in the same mapping. */
static void
add_stack(struct frame_scan *scan, uint64_t from)
{
  uint64_t end = mapping_end(scan->mappings, from);
  for (size_t i = 0; i < scan->part_count; i++) {
    struct stack_part *part = &scan->parts[i];
    if (from < part->from && part->from < end) {
      end = part->from;
      if (i >= scan->begun) {
        part->from = from;
        return;
      }
    }
    if (from >= part->from && from < part->end) {
      return;
    }
  }
  if (end != 0 && scan->part_count < STACKS_MAX) {
    scan->parts[scan->part_count++] = (struct stack_part){from, end};
  }
}

/* The handler may step over the instruction, and so go on anywhere after it. */
static int
add_frame(struct frame_scan *scan, const ucontext_t *context)
{
  const struct ct_stopped *stopped = scan->stopped;
  uint64_t pc = (uint64_t)context->uc_mcontext.gregs[REG_RIP], sp = (uint64_t)context->uc_mcontext.gregs[REG_RSP];
  scan->frame_count++;
  add_stack(scan, sp - 8);
  if (stopped->pc_count >= 2 && stopped->pcs[stopped->pc_count - 2] == pc) {
    return 0; /* as most that are left over */
  }
  int code = ct_stopped_add_pc(scan->stopped, pc);
  return code == 0 ? ct_stopped_add_pc(scan->stopped, pc + 1) : code;
}

/*
 * All signal frames of a stack. Which of them count is not to be known: what a function has room for and does not write
 * to is full of those that are left over, and the one that the thread goes back by lies after them.
 */
static int
scan_stack(struct frame_scan *scan, uint64_t from, uint64_t end)
{
  size_t size = end - from > STACK_SCAN_MAX ? STACK_SCAN_MAX : (size_t)(end - from);
  uint8_t *stack = size < FRAME_BYTES ? NULL : malloc(size);
  int code = 0;
  if (stack != NULL && ct_process_read(scan->stopped->process, from, stack, size) == 0) {
    for (size_t at = 0; at + FRAME_BYTES <= size && code == 0 && scan->frame_count < FRAMES_MAX; at += 8) {
      uint64_t word, state;
      ucontext_t context = {0};
      memcpy(&state, stack + at + 8 + offsetof(ucontext_t, uc_mcontext.fpregs), sizeof(state));
      memcpy(&word, stack + at, sizeof(word));
      if (state == 0 ? !is_wanted(scan->restorers, word) : state - (from + at) >= FRAME_BYTES + FRAME_ALIGN) {
        continue; /* nearly all */
      }
      memcpy(&context, stack + at + 8, offsetof(ucontext_t, uc_sigmask));
      if (is_signal_frame(from + at, &context) && returns_to(scan->stopped, scan->restorers, from + at, word)) {
        code = add_frame(scan, &context);
      }
    }
  }
  free(stack);
  return code;
}

int
ct_stopped_find_interrupted(struct ct_stopped *stopped, const struct ct_mappings *mappings,
                            const struct ct_restorers *restorers, uint64_t sp)
{
  struct frame_scan scan = {.stopped = stopped, .mappings = mappings, .restorers = restorers};
  int code = 0;
  /* A handler that has returned, into the restorer or a hook, has its return address just below sp. */
  add_stack(&scan, mapping_end(mappings, sp - 8) != 0 ? sp - 8 : sp);
  while (scan.begun < scan.part_count && code == 0) {
    const struct stack_part part = scan.parts[scan.begun++];
    code = scan_stack(&scan, part.from, part.end);
  }
  return code;
}
