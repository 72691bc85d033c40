/* SPDX-License-Identifier: MIT */
/*
 * Which stack is this, and where is its return store? The true return address of the frame whose return-address slot is
 * at S is kept at S + D; the store of a stack is mapped, unreserved, when a thread is first seen on it. Known stacks
 * are in the map (ring/stacks.h), where one is found without a lock or a system call. A new one is a mapping of the
 * process, less what is known to be other stacks.
 *
 * The map is changed under a spin lock that is only ever held with all signals blocked. A control page has the range of
 * a stack only while the stack says so (owner): so when a stack goes, one page is to be looked at and not all.
 */
#include "agent/map.h"

#define SPAN_MAX (1ull << 30) /* of a stack: events tell the low halves of addresses, and a store is as large */
#define GROWTH   (2 * CT_PAGE_BYTES)

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

static long
open_maps(void)
{
  /* Not /proc/self: that shows nothing any more when the main thread has ended before the others. */
  static const char path[] = "/proc/thread-self/maps";
  return agent_syscall(SYS_open, (long)path, 02000000 /* O_RDONLY | O_CLOEXEC */, 0, 0, 0, 0);
}

/* Finds the writable mapping that holds sp, and where the one below it ends, in the list of all. */
static int
read_mapping(long fd, uint64_t sp, struct ct_stack_range *range, uint64_t *below)
{
  struct maps_reader reader = {.fd = fd};
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
  return found;
}

/* struct procmap_query (linux/fs.h, since 6.11). */
struct mapping_query {
  uint64_t size, flags, address;
  uint64_t start, end, rights, page_size, offset, inode;
  uint32_t device[2], name_size, build_id_size;
  uint64_t name, build_id;
};
_Static_assert(sizeof(struct mapping_query) == 104, "PROCMAP_QUERY");
#define PROCMAP_QUERY    0xc0686611 /* _IOWR('f', 17, struct procmap_query) */
#define MAPPING_READABLE 1u
#define MAPPING_WRITABLE 2u

/* Finds the writable mapping that holds sp. */
static int
find_mapping(uint64_t sp, struct ct_stack_range *range)
{
  const struct ct_stack_range *first = &agent_config.main_stack;
  if (sp >= first->lo && sp < first->hi) {
    *range = *first;
    return 1;
  }
  long fd = open_maps();
  if (fd < 0) {
    return 0;
  }
  struct mapping_query query = {.size = sizeof(query), .address = sp};
  long got = agent_syscall(SYS_ioctl, fd, PROCMAP_QUERY, (long)&query, 0, 0, 0);
  int found;
  if (got == 0) {
    found = (query.rights & MAPPING_READABLE) != 0 && (query.rights & MAPPING_WRITABLE) != 0;
    range->lo = query.start;
    range->hi = query.end;
  } else {
    uint64_t below;
    found = got != -2 /* ENOENT */ && read_mapping(fd, sp, range, &below);
  }
  agent_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
  return found;
}

void
agent_map_lock(void)
{
  for (uint32_t turn = 1; __atomic_exchange_n(&agent_config.stack_lock, 1, __ATOMIC_ACQUIRE) != 0; turn++) {
    if (turn % 128 == 0) {
      agent_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0); /* who holds it may be in a system call, or not running */
    } else {
      __builtin_ia32_pause();
    }
  }
}

void
agent_map_unlock(void)
{
  __atomic_store_n(&agent_config.stack_lock, 0, __ATOMIC_RELEASE);
}

int
agent_stack_leave(struct ct_control_page *control, const struct ct_stack *stack)
{
  int was_on_it = control->stack_lo < stack->hi && control->stack_lo + control->stack_len > stack->lo;
  if (was_on_it) {
    __atomic_store_n(&control->stack_len, 0, __ATOMIC_RELAXED);
  }
  if (control->hooked_lo < stack->hi && control->stack_hi > stack->lo) {
    __atomic_store_n(&control->hooked_len, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&control->stack_hi, control->hooked_lo, __ATOMIC_RELAXED);
  }
  return was_on_it;
}

void
agent_stack_disown(struct ct_stack *stack)
{
  if (stack->owner != 0) {
    agent_stack_leave(
        (struct ct_control_page *)(agent_config.controls + (uint64_t)(stack->owner - 1) * CT_CONTROL_STRIDE), stack);
    stack->owner = 0;
  }
}

/* Maps the store, or a part of it around sp where there is a limit on address space. */
static void
make_ready(struct ct_stack *stack, uint64_t sp)
{
  uint32_t index = agent_map_index(stack);
  stack->state = CT_STACK_STORELESS;
  if (agent_config.no_stores != 0 || stack->lo + (uint64_t)agent_config.store_delta > stack->lo) {
    return;
  }
  if (!agent_store_take(stack)) {
    uint64_t page = sp & ~(uint64_t)(CT_PAGE_BYTES - 1);
    uint64_t low = page > stack->lo + (1 << 20) ? page - (1 << 20) : stack->lo;
    uint64_t high = page + (1 << 16) < stack->hi ? page + (1 << 16) : stack->hi;
    agent_map_hand(stack->lo, low, index, 0);
    agent_map_hand(high, stack->hi, index, 0);
    stack->lo = low;
    stack->hi = high;
    if (!agent_store_take(stack)) {
      return;
    }
  }
  __atomic_store_n(&stack->state, CT_STACK_READY, __ATOMIC_RELEASE);
}

/*
 * The known stack above sp is the same one when it ends where the mapping does and the kernel has made that larger,
 * down to the page that was touched. (Another stack, which the kernel has joined to it, is as large as it is from the
 * beginning.)
 */
static struct ct_stack *
grown_from(uint64_t sp, const struct ct_stack_range *fresh)
{
  uint64_t above = agent_map_next(agent_map()->stacks_root, (sp | (CT_PAGE_BYTES - 1)) + 1, fresh->hi, 1);
  struct ct_stack *stack = above < fresh->hi ? agent_map_find(above) : 0;
  if (stack == 0 || stack->hi != fresh->hi || stack->state == CT_STACK_DECLARED) {
    return 0;
  }
  return sp - fresh->lo < GROWTH || fresh->hi == agent_config.main_stack.hi ? stack : 0;
}

/* The stack has grown. It is given as much again in advance, as far as nothing else lies there, so that not every step
 * of it comes here. */
static struct ct_stack *
grow(struct ct_stack *old, uint64_t sp, const struct ct_stack_range *fresh)
{
  struct ct_stack_range unused;
  uint64_t size = fresh->hi - fresh->lo, below = fresh->lo;
  long fd = open_maps();
  if (fd >= 0) {
    read_mapping(fd, sp, &unused, &below);
    agent_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
  }
  uint64_t lo = fresh->lo - below > size ? fresh->lo - size : below < fresh->lo ? below : fresh->lo;
  lo = agent_map_previous(lo, fresh->lo);
  uint32_t context = old->context;
  agent_stack_disown(old);
  struct ct_stack *stack = agent_map_new(lo, fresh->hi);
  if (stack != 0) {
    stack->context = context;
    make_ready(stack, sp);
    agent_store_give(old, 0, 0); /* only now: its chunks are this one's too */
    agent_map_drop(old);
  }
  return stack;
}

/* Other threads may have unmapped some of it since it was looked up, or be about to; from now on they see it in the
 * map. */
static void
leave_out_what_goes(struct ct_stack *stack, uint64_t sp)
{
  struct ct_stack_range left = {stack->lo, stack->hi, 0, 0}, now;
  uint64_t page = sp & ~(uint64_t)(CT_PAGE_BYTES - 1);
  agent_going_cut(sp, &left);
  if (!find_mapping(sp, &now)) {
    now = (struct ct_stack_range){page, page + CT_PAGE_BYTES, 0, 0};
  }
  left.lo = left.lo > now.lo ? left.lo : now.lo;
  left.hi = left.hi < now.hi ? left.hi : now.hi;
  agent_map_hand(stack->lo, left.lo, agent_map_index(stack), 0);
  agent_map_hand(left.hi, stack->hi, agent_map_index(stack), 0);
  stack->lo = left.lo;
  stack->hi = left.hi;
}

/* A stack that was not known: what of its mapping is no other one. */
static struct ct_stack *
note_stack(uint64_t sp, const struct ct_stack_range *fresh)
{
  uint64_t page = sp & ~(uint64_t)(CT_PAGE_BYTES - 1);
  struct ct_stack *old = grown_from(sp, fresh);
  if (old != 0) {
    return grow(old, sp, fresh);
  }
  uint64_t lo = fresh->lo, hi = fresh->hi;
  if (hi - lo > SPAN_MAX) {
    lo = page - lo > SPAN_MAX / 2 ? page - SPAN_MAX / 2 : lo;
    hi = hi - page > SPAN_MAX / 2 ? page + SPAN_MAX / 2 : hi;
  }
  struct ct_stack *stack = agent_map_new(agent_map_previous(lo, page),
                                         agent_map_next(agent_map()->stacks_root, page + CT_PAGE_BYTES, hi, 1));
  if (stack != 0) {
    leave_out_what_goes(stack, sp);
    make_ready(stack, sp);
  }
  return stack;
}

static void
publish_range(struct ct_stack *stack, struct ct_control_page *control, uint64_t sp, struct ct_stack_range *range)
{
  if (stack->state == CT_STACK_DECLARED) {
    make_ready(stack, sp);
  }
  if (stack->owner != control->slot + 1) {
    agent_stack_disown(stack);
    stack->owner = control->slot + 1;
  }
  *range = (struct ct_stack_range){stack->lo, stack->hi, stack->state != CT_STACK_READY, stack->context};
}

int
agent_stack_range(struct ct_control_page *control, uint64_t sp, struct ct_stack_range *range)
{
  struct ct_stack_range fresh = {0, 0, 0, 0};
  if (agent_map_find(sp) == 0 && (!find_mapping(sp, &fresh) || sp < fresh.lo || sp >= fresh.hi)) {
    return 0;
  }
  agent_map_lock();
  struct ct_stack *stack = agent_map_find(sp);
  if (stack == 0 && fresh.hi != 0) {
    stack = note_stack(sp, &fresh);
  }
  if (stack != 0) {
    publish_range(stack, control, sp, range);
  }
  agent_map_unlock();
  if (stack == 0) { /* no room in the map; or it has just been taken away, by somebody who should not */
    *range = (struct ct_stack_range){sp & ~(uint64_t)(CT_PAGE_BYTES - 1), (sp | (CT_PAGE_BYTES - 1)) + 1, 1, 0};
  }
  return 1;
}
