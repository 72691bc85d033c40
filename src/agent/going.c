/* SPDX-License-Identifier: MIT */
/*
 * Memory that threads are about to take out of its place (map.h): each says in its control page what it is, and a bit
 * for each slot says that there may be something. A thread that has recorded an event since has come back from the
 * system call. One that records nothing seems to be in it until it next does; then a stack is taken for shorter than it
 * is, and what is beyond is one of its own.
 */
#include "agent/map.h"

#define WORDS (CT_SLOT_COUNT / 64)

static uint64_t going_slots[WORDS] __attribute__((section(".data")));

static struct ct_control_page *
control_of(uint32_t slot)
{
  return (struct ct_control_page *)(agent_config.controls + (uint64_t)slot * CT_CONTROL_STRIDE);
}

void
agent_going_put(uint64_t lo, uint64_t hi)
{
  uint32_t mode, slot;
  __asm__ volatile("movl %%gs:%c1, %0" : "=r"(mode) : "i"(CT_GS_MODE));
  __asm__ volatile("movl %%gs:%c1, %0" : "=r"(slot) : "i"(CT_GS_SLOT));
  if (mode != CT_MODE_ON || slot >= CT_SLOT_COUNT) {
    return; /* a thread that is not known yet */
  }
  struct ct_control_page *control = control_of(slot);
  __atomic_store_n(&control->going_hi, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&control->going_lo, lo, __ATOMIC_RELEASE);
  __atomic_store_n(&control->going_cursor, control->cursor, __ATOMIC_RELAXED);
  __atomic_store_n(&control->going_hi, hi, __ATOMIC_RELEASE);
  /* seq_cst: before this thread looks for stacks, as whoever has made one known does before it looks here */
  __atomic_fetch_or(&going_slots[slot / 64], 1ull << slot % 64, __ATOMIC_SEQ_CST);
}

/* Is the thread still about to? Then what it said is in `gone`. */
static int
is_going(uint32_t slot, struct ct_stack_range *gone)
{
  const struct ct_control_page *control = control_of(slot);
  gone->hi = __atomic_load_n(&control->going_hi, __ATOMIC_ACQUIRE);
  gone->lo = __atomic_load_n(&control->going_lo, __ATOMIC_RELAXED);
  return gone->hi > gone->lo && __atomic_load_n(&control->going_cursor, __ATOMIC_RELAXED) ==
                                    __atomic_load_n(&control->cursor, __ATOMIC_ACQUIRE);
}

void
agent_going_cut(uint64_t sp, struct ct_stack_range *range)
{
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  for (uint32_t word = 0; word < WORDS; word++) {
    uint64_t bits = __atomic_load_n(&going_slots[word], __ATOMIC_SEQ_CST);
    for (; bits != 0; bits &= bits - 1) {
      struct ct_stack_range gone;
      uint64_t bit = bits & -bits;
      __atomic_fetch_and(&going_slots[word], ~bit, __ATOMIC_SEQ_CST);
      if (!is_going(word * 64 + (uint32_t)__builtin_ctzll(bits), &gone)) {
        continue;
      }
      __atomic_fetch_or(&going_slots[word], bit, __ATOMIC_SEQ_CST);
      if (gone.lo > sp && gone.lo < range->hi) {
        range->hi = gone.lo;
      } else if (gone.hi <= sp && gone.hi > range->lo) {
        range->lo = gone.hi;
      }
    }
  }
}
