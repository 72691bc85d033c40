/* SPDX-License-Identifier: MIT */
/*
 * Stacks that are copied out and back (greenlet, Ruby's callcc, setjmp and memcpy). The return store is indexed by
 * address: while such a part of a stack is away, other frames are where it was, and their return addresses take the
 * entries of its frames. So nothing that is copied may hold a trampoline's address:
 *
 *   memcpy and the like    return-address slots in what is copied from the caller's own stack get their true addresses
 *                          first
 *   what moves rsp         (CT_FACT_MOVES_STACK) and so may copy by itself: all return-address slots of the stack do
 *   mremap                 return-address slots in what is moved, on any stack
 *
 *   what reads slots of frames further out by rbp    (CT_FACT_READS_FRAMES) is not copied, but those slots do too
 *
 * Their frames return natively from then on. Frames made afterwards are hooked as ever.
 *
 * A thread that goes from one place on its stack to another does so time and again. So that not every time all of its
 * stack is looked through, its range ends at the place where that was done last (hooked_len, stack_len), and a hook
 * further out comes here by the slow path and moves the end: one step of OUT_BYTES at a time.
 */
#include "agent/agent.h"
#include "agent/map.h"

#define OUT_BYTES 4096u

void
agent_set_stack(struct ct_control_page *control, uint64_t lo, uint64_t len)
{
  control->stack_lo = lo;
  control->stack_len = len;
  control->hooked_lo = lo;
  control->hooked_len = len;
  control->stack_hi = lo + len;
}

int
agent_goes_out(struct ct_control_page *control, uint64_t sp)
{
  uint64_t whole = control->stack_hi - control->stack_lo, at = sp - control->stack_lo;
  if (control->stack_len == 0 || at < control->stack_len || at >= whole) {
    return 0;
  }
  control->stack_len = at + OUT_BYTES < whole ? at + OUT_BYTES : whole;
  control->hooked_len = control->stack_len;
  return 1;
}

/* Is address in the text of trampolines, by the byte table? */
static int
may_be_return_point(uint64_t address)
{
  return address >> 47 == 0 && ((const uint8_t *)agent_config.table)[address >> CT_TABLE_SHIFT] == CT_TEXT_TRAMPOLINE;
}

/* From ra_slot, a multiple of 64, on: where the store may have been written first. */
static uint64_t
skip_unwritten(uint64_t ra_slot, uint64_t hi)
{
  for (; ra_slot + 64 <= hi; ra_slot += 64) {
    const uint64_t *entry = (const uint64_t *)(ra_slot + (uint64_t)agent_config.store_delta);
    if ((entry[0] | entry[1] | entry[2] | entry[3] | entry[4] | entry[5] | entry[6] | entry[7]) != 0) {
      break;
    }
  }
  return ra_slot;
}

/*
 * Gives return-address slots in the range their true addresses; the range's store is mapped. What lies in unused parts
 * of frames may look like a return-address slot and gets the address that the slot had: nobody misses it. Counts them,
 * and in *native those that have their true address already.
 */
static uint32_t
unhook(uint64_t lo, uint64_t hi, uint32_t *native)
{
  uint32_t count = 0;
  for (uint64_t ra_slot = lo & ~7ull; ra_slot < hi; ra_slot += 8) {
    if (ra_slot % 64 == 0) {
      ra_slot = skip_unwritten(ra_slot, hi);
    }
    if (ra_slot >= hi) {
      break;
    }
    uint64_t entry = *(const uint64_t *)(ra_slot + (uint64_t)agent_config.store_delta);
    if (entry == 0) {
      continue;
    }
    uint64_t address = __atomic_load_n((const uint64_t *)ra_slot, __ATOMIC_RELAXED);
    *native += address == entry;
    if (may_be_return_point(address) && agent_is_return_point(address)) {
      __atomic_store_n((uint64_t *)ra_slot, entry, __ATOMIC_RELAXED);
      count++;
    }
  }
  return count;
}

static void
report(struct ct_control_page *control, enum ct_copy what, uint64_t lo, uint64_t hi, uint64_t distance)
{
  if (agent_ring()->closed == 0 && agent_has_room(control, 2)) {
    agent_put_event(control, CT_KIND_OTHER, (uint32_t)what << 4 | CT_OTHER_COPY, (uint32_t)lo);
    agent_put_event(control, CT_KIND_OTHER, ((uint32_t)(distance / 8) & 0x7fffff) << 4 | CT_OTHER_COPY_END,
                    (uint32_t)hi);
  }
}

static uint64_t
least(uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

/* memcpy(to, from, bytes) from the thread's stack, or to it. */
static void
copy(struct ct_control_page *control, uint64_t sp, uint64_t to, uint64_t from, uint64_t bytes)
{
  uint64_t whole = control->stack_hi - control->hooked_lo;
  uint64_t hooked_hi = control->hooked_lo + control->hooked_len;
  if (sp - control->hooked_lo >= whole) {
    return;
  }
  if (from - control->hooked_lo < whole) {
    uint64_t lo = from > sp ? from : sp + 8, hi = least(from + bytes, control->stack_hi);
    uint32_t native = 0, count = lo < hi ? unhook(lo, least(hi, hooked_hi), &native) : 0;
    if (count == 0 && control->copies != 0 && lo < hi) {
      unhook(hooked_hi > lo ? hooked_hi : lo, hi, &native);
    }
    /* What reaches over the place where the thread is about to leave its stack is copied for that. */
    int leaves = control->copies != 0 && lo < hooked_hi && hi > hooked_hi;
    if (count != 0 || leaves || (control->copies != 0 && native != 0)) {
      control->copies = 1;
      report(control, CT_COPY_OUT, lo, hi, to - from);
    }
  } else if (control->copies != 0 && to - control->hooked_lo < whole && to + bytes > sp) {
    report(control, CT_COPY_IN, to, least(to + bytes, control->stack_hi), from - to);
  }
}

static void
move(struct ct_control_page *control, uint64_t sp)
{
  uint64_t at = sp - control->hooked_lo;
  uint32_t native = 0;
  if (at >= control->stack_hi - control->hooked_lo) {
    return;
  }
  if (at < control->hooked_len) {
    unhook(sp, control->hooked_lo + control->hooked_len, &native);
    control->hooked_len = at;
    control->stack_len = control->stack_len != 0 ? at : 0;
  }
  control->copies = 1;
  report(control, CT_COPY_NONE, sp, control->stack_hi, 0);
}

/*
 * A part of a stack goes elsewhere, perhaps of another one than the thread is on. Events have only the low half of an
 * address, which may be one of the current stack's too, so the event says which stack is meant.
 */
static void
report_gone(struct ct_control_page *control, uint64_t lo, uint64_t hi)
{
  int is_current = control->stack_len != 0 && lo - control->stack_lo < control->stack_hi - control->stack_lo;
  const struct ct_stack *stack = agent_map_find(lo);
  if (is_current || stack == 0 || control->mistakable != 0) {
    report(control, CT_COPY_NONE, lo, hi, 0);
    return;
  }
  if (agent_ring()->closed != 0 || !agent_has_room(control, 6)) {
    return;
  }
  agent_put_switch(control, stack->lo, stack->hi - stack->lo, stack->context, lo);
  report(control, CT_COPY_NONE, lo, hi, 0);
  const struct ct_stack *current = control->stack_len != 0 ? agent_map_find(control->stack_lo) : 0;
  if (current != 0) {
    agent_put_switch(control, current->lo, current->hi - current->lo, current->context, control->stack_lo);
  } else {
    control->context = 0; /* the next hook says where it is */
  }
}

static void
remap(struct ct_control_page *control, uint64_t lo, uint64_t bytes)
{
  uint64_t end = lo + bytes;
  uint32_t native = 0;
  while (lo < end) {
    uint64_t hi = end;
    if (!agent_store_part(&lo, &hi)) {
      return;
    }
    if (unhook(lo, hi, &native) != 0) {
      report_gone(control, lo, hi);
    }
    lo = hi;
  }
}

/* As agent_callout_frames; sp is the slot of a function that reads those further out. */
static void
show_frames(struct ct_control_page *control, uint64_t sp)
{
  uint64_t last = control->hooked_lo + control->hooked_len - 8, before = sp, frame = *(const uint64_t *)(sp - 128);
  if (sp - control->hooked_lo >= control->hooked_len) {
    return;
  }
  for (uint32_t i = 0; i < CT_FRAMES_READ && frame > before && frame < last && frame % 8 == 0; i++) {
    uint32_t native = 0;
    if (unhook(frame + 8, frame + 16, &native) != 0 && agent_ring()->closed == 0 && agent_has_room(control, 1)) {
      agent_put_event(control, CT_KIND_OTHER, CT_OTHER_UNSEEN, (uint32_t)(frame + 8));
    }
    before = frame;
    frame = *(const uint64_t *)frame;
  }
}

void
agent_stack_copied(struct ct_control_page *control, uint64_t sp, const struct ct_hook_desc *desc, uint32_t half)
{
  uint64_t first = *(const uint64_t *)(sp - 56), second = *(const uint64_t *)(sp - 48);
  if (half == CT_HALF_MAP) { /* a stack is moved by syscall(SYS_mremap, address, bytes, ...) */
    if (desc->callout == CT_CALLOUT_SYSCALL && first == SYS_mremap) {
      remap(control, second, *(const uint64_t *)(sp - 16));
    }
  } else if (half == CT_HALF_COPY) {
    copy(control, sp, first, second, *(const uint64_t *)(sp - 16));
  } else if (half == CT_HALF_MOVE) {
    move(control, sp);
  } else if (half == CT_HALF_FRAMES) {
    show_frames(control, sp);
  } else {
    remap(control, first, second);
  }
}
