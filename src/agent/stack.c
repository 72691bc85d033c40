/* SPDX-License-Identifier: MIT */
/*
 * Which stack is this, and where is its return store? The true return address of the frame whose slot is at S is
 * kept at S + D; the store of a stack is mapped, unreserved, when the stack is first seen. The known stacks are
 * kept in the configuration under a spin lock that is only ever held with all signals blocked.
 *
 * A range that has become stale (the stack was unmapped, another lies there) does no harm: what matters is that S + D
 * is mapped, and stores are never unmapped.
 */
#include "agent/agent.h"

struct maps_reader {
  long fd;
  long have;
  long at;
  char buffer[1024];
};

static int
next_char(struct maps_reader *reader)
{
  if (reader->at >= reader->have) {
    reader->have = agent_syscall(SYS_read, reader->fd, (long)reader->buffer, sizeof(reader->buffer), 0, 0, 0);
    reader->at = 0;
    if (reader->have <= 0) {
      return -1;
    }
  }
  return reader->buffer[reader->at++];
}

static int
read_hex(struct maps_reader *reader, uint64_t *value)
{
  uint64_t v = 0;
  for (;;) {
    int c = next_char(reader);
    if (c >= '0' && c <= '9') {
      v = v << 4 | (uint64_t)(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      v = v << 4 | (uint64_t)(c - 'a' + 10);
    } else {
      *value = v;
      return c;
    }
  }
}

/* Finds the writable mapping that holds sp, and where the one below it ends. */
static int
find_mapping(uint64_t sp, struct ct_stack_range *range, uint64_t *below)
{
  /* Not /proc/self: that shows nothing any more when the main thread has ended before the others. */
  static const char path[] = "/proc/thread-self/maps";
  struct maps_reader reader = {.have = 0, .at = 0};
  reader.fd = agent_syscall(SYS_open, (long)path, 02000000 /* O_RDONLY | O_CLOEXEC */, 0, 0, 0, 0);
  if (reader.fd < 0) {
    return 0;
  }
  int found = 0;
  *below = 0;
  for (;;) {
    uint64_t lo, hi;
    if (read_hex(&reader, &lo) != '-' || read_hex(&reader, &hi) != ' ') {
      break;
    }
    if (sp >= lo && sp < hi) {
      int r = next_char(&reader);
      int w = next_char(&reader);
      found = r == 'r' && w == 'w';
      range->lo = lo;
      range->hi = hi;
      break;
    }
    *below = hi;
    int c;
    do {
      c = next_char(&reader);
    } while (c >= 0 && c != '\n');
    if (c < 0) {
      break;
    }
  }
  agent_syscall(SYS_close, reader.fd, 0, 0, 0, 0, 0);
  return found;
}

static void
lock(void)
{
  for (uint32_t turn = 1; __atomic_exchange_n(&agent_config.stack_lock, 1, __ATOMIC_ACQUIRE) != 0; turn++) {
    if (turn % 128 == 0) {
      agent_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0); /* who holds it may be in a system call, or not running */
    } else {
      __builtin_ia32_pause();
    }
  }
}

static void
unlock(void)
{
  __atomic_store_n(&agent_config.stack_lock, 0, __ATOMIC_RELEASE);
}

/*
 * Which part of [lo, hi), from lo on, is or is not a store of ours: gives its end. Under the lock. When the list is
 * full what is found mapped is believed to be ours.
 */
static int
is_store(uint64_t lo, uint64_t hi, uint64_t *end)
{
  *end = hi;
  for (uint32_t i = 0; i < agent_config.store_count; i++) {
    if (lo >= agent_config.stores[i].lo && lo < agent_config.stores[i].hi) {
      *end = agent_config.stores[i].hi < hi ? agent_config.stores[i].hi : hi;
      return 1;
    }
    if (agent_config.stores[i].lo > lo && agent_config.stores[i].lo < *end) {
      *end = agent_config.stores[i].lo;
    }
  }
  return 0;
}

static void
note_store(uint64_t lo, uint64_t hi)
{
  for (uint32_t i = 0; i < agent_config.store_count; i++) {
    if (agent_config.stores[i].lo == hi) {
      agent_config.stores[i].lo = lo;
      return;
    }
    if (agent_config.stores[i].hi == lo) {
      agent_config.stores[i].hi = hi;
      return;
    }
  }
  if (agent_config.store_count < CT_STORE_MAX) {
    agent_config.stores[agent_config.store_count++] = (struct ct_store){lo, hi};
  }
}

/*
 * Maps what is no store of ours yet in [lo, hi). 0 when something of the target's lies there. Once the list is full
 * a piece may be ours without being in it: then what is mapped already is passed over, in steps.
 */
static int
map_store(uint64_t lo, uint64_t hi)
{
  int ok = 1;
  lock();
  while (ok && lo < hi) {
    uint64_t end;
    if (is_store(lo, hi, &end)) {
      lo = end;
      continue;
    }
    uint64_t length = end - lo;
    long got;
    for (;;) {
      got = agent_syscall(SYS_mmap, (long)lo, (long)length, PROT_RW,
                          MAP_PRIVATE_ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
      if (got != -17 /* EEXIST */ || agent_config.store_count < CT_STORE_MAX || length <= CT_PAGE_BYTES) {
        break;
      }
      length = (length / 2 + CT_PAGE_BYTES - 1) & ~(uint64_t)(CT_PAGE_BYTES - 1);
    }
    if (got == (long)lo) {
      note_store(lo, lo + length);
    } else {
      ok = got == -17 && agent_config.store_count >= CT_STORE_MAX;
    }
    lo += length;
  }
  unlock();
  return ok;
}

static int
look_up(uint64_t sp, struct ct_stack_range *range)
{
  int found = 0;
  lock();
  for (uint32_t i = 0; i < CT_STACK_CACHE && !found; i++) {
    const struct ct_stack_range *known = &agent_config.stacks[i];
    if (sp >= known->lo && sp < known->hi) {
      *range = *known;
      found = 1;
    }
  }
  unlock();
  return found;
}

/* The known range with the same upper end takes the new bounds: a stack that has grown is one stack. */
static void
remember(const struct ct_stack_range *range)
{
  static __attribute__((section(".data"))) uint32_t next = 1; /* 0 is the main stack, from the controller */
  lock();
  uint32_t at = 0;
  for (uint32_t i = 1; i < CT_STACK_CACHE; i++) {
    at = agent_config.stacks[i].hi == range->hi ? i : at;
  }
  if (at == 0) {
    at = next;
    next = next + 1 < CT_STACK_CACHE ? next + 1 : 1;
  }
  agent_config.stacks[at] = *range;
  unlock();
}

/*
 * True when a stack with this upper end was known with a higher lower one: it grows. Then it is given as much again
 * in advance, as far as nothing else lies there, so that not every step of it is a stack never seen.
 */
static int
has_grown(const struct ct_stack_range *fresh)
{
  int grown = 0;
  lock();
  for (uint32_t i = 0; i < CT_STACK_CACHE; i++) {
    const struct ct_stack_range *known = &agent_config.stacks[i];
    grown |= known->hi == fresh->hi && known->lo > fresh->lo;
  }
  unlock();
  return grown;
}

static void
give_room(struct ct_stack_range *range, uint64_t below)
{
  uint64_t size = range->hi - range->lo;
  if (range->lo - below > size) {
    range->lo -= size;
  } else if (below < range->lo) {
    range->lo = below;
  }
}

int
agent_stack_range(uint64_t sp, struct ct_stack_range *range)
{
  if (look_up(sp, range)) {
    return 1;
  }
  struct ct_stack_range fresh = {0, 0, 0};
  uint64_t below;
  if (!find_mapping(sp, &fresh, &below)) {
    return 0;
  }
  if (has_grown(&fresh)) {
    give_room(&fresh, below);
  }
  uint64_t lo = fresh.lo + (uint64_t)agent_config.store_delta;
  uint64_t hi = fresh.hi + (uint64_t)agent_config.store_delta;
  if (agent_config.no_stores || lo >= hi || lo < 0x10000 || hi >= 0x7ffffffff000ull) {
    fresh.light = 1;
  } else if (!map_store(lo, hi)) {
    /* A limit on address space, perhaps: a window around sp will do. */
    uint64_t page = sp & ~(uint64_t)(CT_PAGE_BYTES - 1);
    uint64_t low = page > fresh.lo + (1 << 20) ? page - (1 << 20) : fresh.lo;
    uint64_t high = page + (1 << 16) < fresh.hi ? page + (1 << 16) : fresh.hi;
    fresh.lo = low;
    fresh.hi = high;
    fresh.light = !map_store(low + (uint64_t)agent_config.store_delta, high + (uint64_t)agent_config.store_delta);
  }
  remember(&fresh);
  *range = fresh;
  return 1;
}
