/* SPDX-License-Identifier: MIT */
/*
 * The program changes its mappings, or reports a stack (callouts of mmap, munmap, mremap, makecontext, make_fcontext).
 *
 *   memory that goes      stacks in it are forgotten, and what their return stores had in memory is given back
 *   memory that it takes  where it will have something of its own there is no store of ours from then on. Frames of the
 *                         stacks that had it get their true return addresses and return natively; from then on such a
 *                         stack has no return store. So the program finds at the address what it would without us.
 *   a new stack           is known from then on, though it may share its mapping with others
 *
 * Nothing is refused to the program, and nothing is changed when none of ours is concerned, which agent_map_concerns
 * says without a lock or a system call.
 */
#include "agent/map.h"

#define ADDRESS_MAX 0x7ffffffff000ull
#define FLAG_FIXED  0x10
#define REMAP_FIXED 2
/* asm-generic/mman-common.h: memory does not keep what is in it, here or in a child. */
#define ADVICE_DONTNEED   4
#define ADVICE_FREE       8
#define ADVICE_REMOVE     9
#define ADVICE_DONTFORK   10
#define ADVICE_WIPEONFORK 18
/* How long other threads have to leave a hook that they are in with a stack whose store goes, in steps of a
 * millisecond: until each of them is seen elsewhere, or has run for so long. */
#define LEAVE_STEPS     2000
#define LEAVE_STEPS_MIN 2 /* where that cannot be found out */
#define LEAVE_RUN_NS    10000000
#define OTHERS_MAX      64u
#define PASSES_MAX      8

struct range {
  uint64_t lo, hi;
};

/* What a call asks for. */
struct change {
  struct range gone;  /* unmapped */
  struct range taken; /* the program has something there after the call */
  struct range stack; /* it will run there */
  struct range moved; /* it goes elsewhere: perhaps a stack */
  struct range other; /* not what it was any more, in another way: ours cannot bear it */
};

static uint64_t
page_up(uint64_t value)
{
  return (value + CT_PAGE_BYTES - 1) & ~(uint64_t)(CT_PAGE_BYTES - 1);
}

static struct range
range_of(uint64_t address, uint64_t bytes)
{
  struct range range = {address & ~(uint64_t)(CT_PAGE_BYTES - 1), page_up(address + bytes)};
  if (bytes == 0 || address >= ADDRESS_MAX || bytes > ADDRESS_MAX) {
    return (struct range){0, 0};
  }
  range.hi = range.hi < ADDRESS_MAX ? range.hi : ADDRESS_MAX;
  return range;
}

/* Whole pages; one that two stacks share is that one's that has its beginning there. */
static struct range
stack_of(uint64_t lo, uint64_t bytes)
{
  if (bytes < CT_PAGE_BYTES || bytes > (1ull << 30) || lo >= ADDRESS_MAX) {
    return (struct range){0, 0};
  }
  return (struct range){page_up(lo), page_up(lo + bytes)};
}

static struct change
change_of(uint8_t callout, const uint64_t args[5])
{
  struct change change = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}};
  switch (callout) {
  case CT_CALLOUT_MMAP:
    if (args[0] != 0) { /* a hint, too, is to be had as it would be without us */
      change.taken = range_of(args[0], args[1]);
    }
    if ((args[3] & FLAG_FIXED) != 0) {
      change.gone = change.taken;
    } else if ((args[3] & MAP_FIXED_NOREPLACE) != 0) {
      change.other = change.taken;
    }
    break;
  case CT_CALLOUT_MUNMAP:
    change.gone = change.taken = range_of(args[0], args[1]);
    break;
  case CT_CALLOUT_REMAP:
    if ((args[3] & REMAP_FIXED) != 0) {
      change.gone = change.taken = range_of(args[4], args[2]);
    }
    change.other = range_of(args[0], args[1] != 0 ? args[1] : 1);
    change.moved = range_of(args[0], args[1]);
    break;
  case CT_CALLOUT_PROTECT:
    change.other = range_of(args[0], args[1]);
    break;
  case CT_CALLOUT_ADVISE:
    if (args[2] == ADVICE_DONTNEED || (args[2] >= ADVICE_FREE && args[2] <= ADVICE_DONTFORK) ||
        args[2] == ADVICE_WIPEONFORK) {
      change.other = range_of(args[0], args[1]);
    }
    break;
  case CT_CALLOUT_MAKECONTEXT: { /* ucontext_t: flags, link, stack_t with address, flags, size */
    const uint64_t *context = (const uint64_t *)args[0];
    change.stack = stack_of(context[2], context[4]);
    break;
  }
  case CT_CALLOUT_MAKE_FCONTEXT: /* make_fcontext(end of the stack, bytes, function) */
    change.stack = stack_of(args[0] - args[1], args[1]);
    break;
  default:
    break;
  }
  return change;
}

static uint8_t
callout_of(const struct ct_hook_desc *desc, uint64_t number)
{
  if (desc->callout != CT_CALLOUT_SYSCALL) {
    return desc->callout;
  }
  switch (number) {
  case SYS_mmap:
    return CT_CALLOUT_MMAP;
  case SYS_munmap:
    return CT_CALLOUT_MUNMAP;
  case SYS_mremap:
    return CT_CALLOUT_REMAP;
  case SYS_mprotect:
  case SYS_pkey_mprotect:
    return CT_CALLOUT_PROTECT;
  case SYS_madvise:
    return CT_CALLOUT_ADVISE;
  default:
    return CT_CALLOUT_NONE;
  }
}

static int
has_stack(struct range range)
{
  return agent_map_next(agent_map()->stacks_root, range.lo, range.hi, 1) < range.hi;
}

static int
meets(struct range range, uint64_t lo, uint64_t bytes)
{
  return range.lo < lo + bytes && range.hi > lo;
}

/* Ring, agent, control pages, table, map of stacks, trampolines. Of the agent's list: regions, and pages of stubs. What
 * else is in it lies in the program's own text. */
static int
is_ours(struct range range)
{
  const struct ct_ring_header *r = agent_ring();
  const struct ct_inside *inside = &r->inside;
  if (range.hi == 0) {
    return 0;
  }
  if (meets(range, agent_config.ring, r->total_bytes) || meets(range, inside->agent, inside->agent_bytes) ||
      meets(range, inside->controls, inside->controls_bytes) || meets(range, inside->table, inside->table_bytes) ||
      meets(range, inside->stacks, inside->stacks_bytes)) {
    return 1;
  }
  uint64_t count = __atomic_load_n(&agent_config.region_count, __ATOMIC_ACQUIRE);
  for (uint64_t i = 0; i < count && i < CT_REGION_MAX; i++) {
    const struct ct_region *region = &agent_config.regions[i];
    if (region->desc_count != 0 && region->hi != 0
            ? range.hi > region->lo &&
                  meets(range, region->lo, ((const struct ct_region_head *)region->lo)->region_bytes)
            : region->hi - region->lo == CT_STUB_PAGES_BYTES && meets(range, region->lo, CT_STUB_PAGES_BYTES)) {
      return 1;
    }
  }
  return 0;
}

static int
is_known(struct range range)
{
  const struct ct_stack *stack = agent_map_find(range.lo);
  return stack != 0 && stack->lo == range.lo && stack->hi == range.hi;
}

static struct change
change_in(const struct ct_hook_desc *desc, const uint64_t args[6])
{
  return change_of(callout_of(desc, args[0]), desc->callout == CT_CALLOUT_SYSCALL ? args + 1 : args);
}

uint32_t
agent_map_concerns(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, const struct ct_hook_desc *desc)
{
  const uint64_t args[6] = {a, b, c, d, e, 0}; /* of syscall() the last one that counts is MREMAP's new address */
  struct change change = change_in(desc, args);
  if (is_ours(change.gone) || is_ours(change.other)) {
    return CT_CONCERNS_OURS;
  }
  if (change.gone.hi != 0 || change.moved.hi != 0) {
    struct range going = change.gone.hi != 0 ? change.gone : change.moved;
    agent_going_put(going.lo, going.hi);
  }
  int concerns = (change.gone.hi != 0 && has_stack(change.gone)) || (change.moved.hi != 0 && has_stack(change.moved)) ||
                 (change.taken.hi != 0 && agent_store_has(change.taken.lo, change.taken.hi)) ||
                 (change.stack.hi != 0 && !is_known(change.stack));
  return concerns ? CT_CONCERNS_STACKS : CT_CONCERNS_NOTHING;
}

/* Part of the stack's memory goes: the larger part that is left is the stack. */
static void
cut(struct ct_stack *stack, uint64_t lo, uint64_t hi)
{
  uint32_t index = agent_map_index(stack);
  if (stack->hi > hi) {
    agent_map_hand(stack->lo, hi, index, 0);
    stack->lo = hi;
  } else {
    agent_map_hand(lo, stack->hi, index, 0);
    stack->hi = lo;
  }
}

static void
forget(struct range gone, uint64_t sp)
{
  for (uint64_t at = gone.lo; (at = agent_map_next(agent_map()->stacks_root, at, gone.hi, 1)) < gone.hi;) {
    struct ct_stack *stack = agent_map_find(at);
    if (stack == 0 || (sp >= stack->lo && sp < stack->hi)) {
      at = stack != 0 ? stack->hi : at + CT_PAGE_BYTES; /* whoever unmaps its own stack does not come back */
      continue;
    }
    at = stack->hi;
    agent_stack_disown(stack);
    if (stack->lo < gone.lo || stack->hi > gone.hi) {
      cut(stack, gone.lo, gone.hi);
    } else {
      agent_store_give(stack, stack->lo, stack->hi);
      agent_map_drop(stack);
    }
  }
}

/* Any word of a stack may be asked for, so nothing is read at it: a region's first address has nothing before it. */
static int
is_return_point(uint64_t address)
{
  return address >> 47 == 0 && ((const uint8_t *)agent_config.table)[address >> CT_TABLE_SHIFT] == CT_TEXT_TRAMPOLINE &&
         agent_is_return_point(address);
}

/* The return-address slots whose entries lie in one page of a store, and on the stack in [lo, hi). */
static void
put_back_page(uint64_t store_page, uint64_t lo, uint64_t hi)
{
  uint64_t words[CT_PAGE_BYTES / 8], delta = (uint64_t)agent_config.store_delta;
  uint64_t first = store_page - delta, end = first + CT_PAGE_BYTES;
  first = first > lo ? first : lo;
  end = end < hi ? end : hi;
  if (first >= end) {
    return;
  }
  /* By a system call, since the program may have forbidden a part of it. */
  const uint64_t to[2] = {(uint64_t)words, end - first}, from[2] = {first, end - first};
  long got =
      agent_syscall(SYS_process_vm_readv, agent_syscall(SYS_getpid, 0, 0, 0, 0, 0, 0), (long)to, 1, (long)from, 1, 0);
  for (long i = 0; i < got / 8; i++) {
    uint64_t entry = *(const uint64_t *)(first + (uint64_t)i * 8 + delta);
    if (entry != 0 && is_return_point(words[i])) {
      __atomic_store_n((uint64_t *)(first + (uint64_t)i * 8), entry, __ATOMIC_RELAXED);
    }
  }
}

/* Return-address slots in [lo, hi) of a stack get their true addresses. */
static void
put_back(uint64_t lo, uint64_t hi)
{
  struct ct_store_range store = ct_store_of(lo, hi, agent_config.store_delta);
  uint8_t resident[256];
  for (uint64_t at = store.lo; at < store.hi; at += sizeof(resident) * CT_PAGE_BYTES) {
    uint64_t pages = (store.hi - at) / CT_PAGE_BYTES;
    pages = pages < sizeof(resident) ? pages : sizeof(resident);
    if (agent_syscall(SYS_mincore, (long)at, (long)(pages * CT_PAGE_BYTES), (long)resident, 0, 0, 0) != 0) {
      continue;
    }
    for (uint64_t i = 0; i < pages; i++) {
      if ((resident[i] & 1) != 0) {
        put_back_page(at + i * CT_PAGE_BYTES, lo, hi);
      }
    }
  }
}

/* Threads that were last on a stack whose store goes. */
struct others {
  const struct ct_control_page *own; /* who asks */
  uint32_t count;                    /* may be more than there is room for */
  struct ct_control_page *pages[OTHERS_MAX];
  uint64_t entered[OTHERS_MAX];
  uint64_t ran_ns[OTHERS_MAX]; /* 0: not known */
  uint64_t changed;            /* bits: it has run since the first pass, to ran_ns */
};

static long
read_of_thread(uint32_t tid, const char *name, char *buffer, long bytes)
{
  static const char head[] = "/proc/self/task/";
  char path[64], digits[10];
  uint32_t at = 0, count = 0;
  for (const char *c = head; *c != '\0'; c++) {
    path[at++] = *c;
  }
  do {
    digits[count++] = (char)('0' + tid % 10);
    tid /= 10;
  } while (tid != 0);
  while (count != 0) {
    path[at++] = digits[--count];
  }
  for (const char *c = name; *c != '\0'; c++) {
    path[at++] = *c;
  }
  path[at] = '\0';
  long fd = agent_syscall(SYS_open, (long)path, 02000000 /* O_RDONLY | O_CLOEXEC */, 0, 0, 0, 0);
  long got = fd >= 0 ? agent_syscall(SYS_read, fd, (long)buffer, bytes, 0, 0, 0) : fd;
  if (fd >= 0) {
    agent_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
  }
  return got;
}

/* How long the thread has run so far, the first number of schedstat; 0 where it is not known. */
static uint64_t
run_time_of(uint32_t tid)
{
  static const char name[] = "/schedstat";
  char text[64];
  uint64_t value = 0;
  long got = read_of_thread(tid, name, text, sizeof(text));
  for (long i = 0; i < got && text[i] >= '0' && text[i] <= '9'; i++) {
    value = value * 10 + (uint64_t)(text[i] - '0');
  }
  return value;
}

/* Does the thread wait in a system call that is not the agent's? Then it is in no hook. Its file says "running", or the
 * call's number (-1: none), arguments, sp and pc. */
static int
waits_elsewhere(uint32_t tid)
{
  static const char name[] = "/syscall";
  const struct ct_inside *inside = &agent_ring()->inside;
  char text[256];
  long got = read_of_thread(tid, name, text, sizeof(text)), at = got - 1;
  if (got <= 1 || text[0] < '0' || text[0] > '9') {
    return 0;
  }
  while (at > 0 && text[at - 1] != 'x') {
    at--;
  }
  uint64_t pc = 0;
  for (; at < got && text[at] != '\n'; at++) {
    pc = pc << 4 | (uint64_t)(text[at] <= '9' ? text[at] - '0' : text[at] - 'a' + 10);
  }
  return pc - inside->agent >= inside->agent_bytes;
}

/*
 * A thread in a hook comes out of it when it gets a processor, which may take long: where others want that it runs for
 * some microseconds at a time. Its next hook takes the slow path, and an enter half there has left all hooks before.
 * One that calls nothing is known by its time. (The kernel counts that up at a tick or when the thread leaves the
 * processor: the first step may describe time before the first pass, what comes after it does not.)
 */
static int
has_left(struct others *others, uint32_t i, uint32_t step)
{
  uint32_t tid = others->pages[i]->tid;
  if (__atomic_load_n(&others->pages[i]->enters, __ATOMIC_ACQUIRE) != others->entered[i] || waits_elsewhere(tid)) {
    return 1;
  }
  uint64_t now = run_time_of(tid);
  if (now == 0 || others->ran_ns[i] == 0) { /* it has ended, or cannot be looked at */
    return step >= LEAVE_STEPS_MIN;
  }
  if ((others->changed >> i & 1) == 0 && now != others->ran_ns[i]) {
    others->changed |= 1ull << i;
    others->ran_ns[i] = now;
  }
  return now - others->ran_ns[i] >= LEAVE_RUN_NS;
}

/* Until each of them has left the hook that it may have been in when this was called. */
static void
wait_for_others(struct others *others)
{
  uint32_t known = others->count < OTHERS_MAX ? others->count : OTHERS_MAX, left = 0;
  if (others->count == 0) {
    return;
  }
  others->changed = 0;
  for (uint32_t i = 0; i < known; i++) {
    others->entered[i] = __atomic_load_n(&others->pages[i]->enters, __ATOMIC_ACQUIRE);
    others->ran_ns[i] = run_time_of(others->pages[i]->tid);
  }
  for (uint32_t step = 0; step < LEAVE_STEPS; step++) {
    while (left < known && has_left(others, left, step)) {
      left++;
    }
    if (left == known && (others->count == known || step >= LEAVE_STEPS_MIN)) {
      return;
    }
    struct agent_timespec time = {0, 1000000};
    agent_syscall(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
  }
}

static void
add_owner(struct others *others, uint32_t slot)
{
  struct ct_control_page *control =
      (struct ct_control_page *)(agent_config.controls + (uint64_t)slot * CT_CONTROL_STRIDE);
  if (control == others->own) {
    return;
  }
  for (uint32_t i = 0; i < others->count && i < OTHERS_MAX; i++) {
    if (others->pages[i] == control) {
      return;
    }
  }
  if (others->count < OTHERS_MAX) {
    others->pages[others->count] = control;
  }
  others->count++;
}

/*
 * Each stack with its store in the range, pass by pass: first none of them is recorded any more; then frames get their
 * true addresses. In between, and after that, other threads have time to leave the hooks that they are in. One that
 * had just learnt of its stack when that changed may have put the range in afterwards: 1, and one more pass is
 * needed.
 */
static int
release_stacks(struct range taken, uint64_t sp, int pass, struct others *others)
{
  uint64_t delta = (uint64_t)agent_config.store_delta;
  uint64_t lo = (taken.lo - delta) & ~(uint64_t)(CT_PAGE_BYTES - 1), hi = page_up(taken.hi - delta);
  int found = 0;
  if (taken.lo - delta > ADDRESS_MAX) {
    return 0;
  }
  hi = hi < ADDRESS_MAX ? hi : ADDRESS_MAX;
  for (uint64_t at = lo; (at = agent_map_next(agent_map()->stacks_root, at, hi, 1)) < hi;) {
    struct ct_stack *stack = agent_map_find(at);
    if (stack == 0 || stack->store_lo == stack->store_hi) {
      at = stack != 0 ? stack->hi : at + CT_PAGE_BYTES;
      continue;
    }
    at = stack->hi;
    if (stack->owner != 0 && (sp < stack->lo || sp >= stack->hi)) {
      add_owner(others, stack->owner - 1);
    }
    __atomic_store_n(&stack->state, CT_STACK_STORELESS, __ATOMIC_SEQ_CST);
    agent_stack_disown(stack);
    for (uint32_t i = 0; pass > 0 && i < others->count && i < OTHERS_MAX; i++) {
      found |= agent_stack_leave(others->pages[i], stack);
    }
    if (pass > 0) {
      uint64_t from = taken.lo - delta, to = taken.hi - delta;
      put_back(from > stack->lo ? from & ~7ull : stack->lo, to < stack->hi ? to : stack->hi);
    }
  }
  return found;
}

/* With the lock, but not while others are waited for: who comes out of a hook may need it. Meanwhile no stack is given
 * a store there. */
static void
release(struct range taken, uint64_t sp, const struct ct_control_page *own)
{
  struct others others = {.own = own};
  agent_store_reserve(taken.lo, taken.hi);
  for (int pass = 0, passes = 2; pass < passes && pass < PASSES_MAX; pass++) {
    passes += release_stacks(taken, sp, pass, &others);
    agent_map_unlock();
    wait_for_others(&others);
    agent_map_lock();
  }
  agent_store_leave(taken.lo, taken.hi);
  agent_store_reserve(0, 0);
}

/* What is known of the stack's pages makes way. A stack that goes on on both sides is one in two parts. */
static void
split(struct ct_stack *stack, struct range inner)
{
  uint64_t lo = stack->lo, hi = stack->hi;
  int both = lo < inner.lo && hi > inner.hi;
  agent_stack_disown(stack);
  if (lo >= inner.lo && hi <= inner.hi) {
    agent_store_give(stack, 0, 0);
    agent_map_drop(stack);
    return;
  }
  cut(stack, inner.lo, inner.hi);
  struct ct_stack *lower = both ? agent_map_new(lo, inner.lo) : 0;
  if (lower != 0) {
    lower->context = stack->context;
    lower->state = stack->state;
    if (stack->state == CT_STACK_READY && !agent_store_take(lower)) {
      agent_map_drop(lower);
    }
  }
}

static void
declare(struct range range)
{
  for (uint64_t at = range.lo; (at = agent_map_next(agent_map()->stacks_root, at, range.hi, 1)) < range.hi;) {
    struct ct_stack *stack = agent_map_find(at);
    if (stack == 0) {
      at += CT_PAGE_BYTES;
    } else {
      at = stack->hi;
      split(stack, range);
    }
  }
  struct ct_stack *stack = agent_map_new(range.lo, range.hi);
  if (stack != 0) {
    stack->state = CT_STACK_DECLARED;
  }
}

void
agent_mappings_change(const struct ct_control_page *control, uint64_t sp, const struct ct_hook_desc *desc)
{
  /* As slow_common has saved them: rdi, rsi, rdx, rcx, r8, r9. */
  const uint64_t args[6] = {*(const uint64_t *)(sp - 56), *(const uint64_t *)(sp - 48), *(const uint64_t *)(sp - 16),
                            *(const uint64_t *)(sp - 40), *(const uint64_t *)(sp - 64), *(const uint64_t *)(sp - 72)};
  struct change change = change_in(desc, args);
  if (agent_is_silent()) {
    return;
  }
  agent_map_lock();
  if (change.gone.hi != 0) {
    forget(change.gone, sp);
  }
  if (change.taken.hi != 0 && agent_store_has(change.taken.lo, change.taken.hi)) {
    release(change.taken, sp, control);
  }
  if (change.stack.hi != 0 && !is_known(change.stack)) {
    declare(change.stack);
  }
  agent_map_unlock();
}
