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

/* Finds the writable mapping that holds sp. */
static int
find_mapping(uint64_t sp, struct ct_stack_range *range)
{
  /* Not /proc/self: that shows nothing any more when the main thread has ended before the others. */
  static const char path[] = "/proc/thread-self/maps";
  struct maps_reader reader = {.have = 0, .at = 0};
  reader.fd = agent_syscall(SYS_open, (long)path, 02000000 /* O_RDONLY | O_CLOEXEC */, 0, 0, 0, 0);
  if (reader.fd < 0) {
    return 0;
  }
  int found = 0;
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
  while (__atomic_exchange_n(&agent_config.stack_lock, 1, __ATOMIC_ACQUIRE) != 0) {
    __builtin_ia32_pause();
  }
}

static void
unlock(void)
{
  __atomic_store_n(&agent_config.stack_lock, 0, __ATOMIC_RELEASE);
}

/* Return stores that have been mapped, ever. When the list is full what is found mapped is believed to be ours. */
struct store {
  uint64_t lo, hi;
};
#define STORE_MAX 1024u
static __attribute__((section(".bss"))) struct store stores[STORE_MAX];
static __attribute__((section(".bss"))) uint32_t store_count;

static int
is_ours(uint64_t page)
{
  const struct ct_stack_range *main_stack = &agent_config.stacks[0];
  uint64_t at = page - (uint64_t)agent_config.store_delta;
  if (at >= main_stack->lo && at < main_stack->hi) {
    return 1;
  }
  uint32_t count = __atomic_load_n(&store_count, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < count && i < STORE_MAX; i++) {
    if (page >= stores[i].lo && page < stores[i].hi) {
      return 1;
    }
  }
  return count >= STORE_MAX;
}

static void
note_store(uint64_t lo, uint64_t hi)
{
  uint32_t at = __atomic_load_n(&store_count, __ATOMIC_RELAXED);
  if (at < STORE_MAX) {
    stores[at] = (struct store){lo, hi};
    __atomic_store_n(&store_count, at + 1, __ATOMIC_RELEASE);
  }
}

/* Maps [lo, hi) but for the parts that are stores of ours already. 0 when something of the target's lies there. */
static int
map_store(uint64_t lo, uint64_t hi)
{
  while (lo < hi) {
    uint64_t length = hi - lo;
    for (;;) {
      long got = agent_syscall(SYS_mmap, (long)lo, (long)length, PROT_RW,
                               MAP_PRIVATE_ANON | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
      if (got == (long)lo) {
        lock();
        note_store(lo, lo + length);
        unlock();
        break;
      }
      if (got != -17 /* EEXIST */) {
        return 0;
      }
      if (length <= CT_PAGE_BYTES) {
        if (!is_ours(lo)) {
          return 0;
        }
        break;
      }
      length = (length / 2 + CT_PAGE_BYTES - 1) & ~(uint64_t)(CT_PAGE_BYTES - 1);
    }
    lo += length;
  }
  return 1;
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

static void
remember(const struct ct_stack_range *range)
{
  static __attribute__((section(".data"))) uint32_t next = 1; /* 0 is the main stack, from the controller */
  lock();
  agent_config.stacks[next] = *range;
  next = next + 1 < CT_STACK_CACHE ? next + 1 : 1;
  unlock();
}

int
agent_stack_range(uint64_t sp, struct ct_stack_range *range)
{
  if (look_up(sp, range)) {
    return 1;
  }
  struct ct_stack_range fresh = {0, 0, 0};
  if (!find_mapping(sp, &fresh)) {
    return 0;
  }
  uint64_t lo = fresh.lo + (uint64_t)agent_config.store_delta;
  uint64_t hi = fresh.hi + (uint64_t)agent_config.store_delta;
  if (lo >= hi || lo < 0x10000 || hi >= 0x7ffffffff000ull) {
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
