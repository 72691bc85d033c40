/* SPDX-License-Identifier: MIT */
/*
 * What the program writes to its standard output and error is copied on its way, into pieces of the ring that the drain
 * empties. Nobody waits: what finds no free pieces is counted.
 *
 * The buffer is read by process_vm_readv, so that an address at which nothing can be read is the kernel's answer here
 * as it will be in write. What is copied is what the call was given; how much of that the kernel takes is not known
 * yet.
 *
 * Runs on the caller's stack with signals as they are: each step is one atomic operation, a handler in between may
 * write too.
 */
#include "agent/agent.h"

#define VECTORS_MAX    1024 /* of writev */
#define SUMMED_MAX     16   /* vectors whose sizes are looked at before */
#define UNKNOWN_BYTES  8192 /* as many are expected in the others */
#define BACKLOG_PIECES 256  /* so many taken ones wake the drain */

struct vector {
  uint64_t address, bytes;
};

static struct ct_capture_pool *
capture_pool(void)
{
  return (struct ct_capture_pool *)(agent_config.ring + agent_ring()->capture_offset);
}

static struct ct_capture *
run_at(uint32_t index)
{
  return (struct ct_capture *)((uint8_t *)capture_pool() + CT_PAGE_BYTES + (uint64_t)index * CT_CAPTURE_BYTES);
}

static uint64_t
mask_of(uint32_t pieces)
{
  return (1ull << pieces) - 1; /* at most CT_CAPTURE_RUN_MAX */
}

static void
give_back(struct ct_capture_pool *pool, uint32_t index, uint64_t mask)
{
  __atomic_fetch_or(&pool->free_map[index / 64], mask << (index % 64), __ATOMIC_RELEASE);
}

/* So many neighbouring pieces, the lowest ones, so that few pages are touched; CT_CAPTURE_PIECES when there are none.
 */
static uint32_t
take_run(struct ct_capture_pool *pool, uint32_t pieces)
{
  uint64_t wanted = mask_of(pieces);
  for (uint32_t w = 0; w < CT_CAPTURE_MAP_WORDS; w++) {
    uint64_t bits = __atomic_load_n(&pool->free_map[w], __ATOMIC_RELAXED);
    for (uint32_t at = 0; bits >> at != 0 && at + pieces <= 64; at++) {
      if ((bits >> at & wanted) != wanted) {
        continue;
      }
      /* acquire: pairs with the drain's release when it gave the pieces back */
      uint64_t had = __atomic_fetch_and(&pool->free_map[w], ~(wanted << at), __ATOMIC_ACQUIRE) >> at & wanted;
      if (had == wanted) {
        return w * 64 + at;
      }
      give_back(pool, w * 64 + at, had); /* somebody else has taken some of them */
      bits &= ~(wanted << at);
    }
  }
  return CT_CAPTURE_PIECES;
}

static long
read_own(const struct vector *to, const struct vector *from, uint64_t from_count)
{
  return agent_syscall(SYS_process_vm_readv, (long)agent_config.pid, (long)to, 1, (long)from, (long)from_count, 0);
}

/* How many bytes a writev is given, as far as the first vectors tell; *all is 0 when there are more. */
static uint64_t
size_of_vectors(uint64_t address, uint64_t count, int *all)
{
  struct vector vectors[SUMMED_MAX], to = {(uint64_t)vectors, sizeof(vectors)};
  uint64_t looked = count < SUMMED_MAX ? count : SUMMED_MAX, sum = 0;
  struct vector from = {address, looked * sizeof(vectors[0])};
  long got = read_own(&to, &from, 1);
  for (long i = 0; i < got / (long)sizeof(vectors[0]); i++) {
    sum += vectors[i].bytes;
  }
  *all = looked == count;
  return sum;
}

/* The thread's id when it is one that is recorded; a forked child, or one of vfork, is not. */
static uint32_t
own_tid(void)
{
  uint32_t mode, tid;
  __asm__ volatile("movl %%gs:%c1, %0" : "=r"(mode) : "i"(CT_GS_MODE));
  if (mode == CT_MODE_ON) {
    __asm__ volatile("movl %%gs:%c1, %0" : "=r"(tid) : "i"(CT_GS_TID));
    return tid;
  }
  if (mode == CT_MODE_OFF || !agent_is_traced()) {
    return 0;
  }
  return (uint32_t)agent_syscall(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

/* Copies what there is into a run. Returns the bytes, CT_CAPTURE_DATA_MAX at most, 0 when there are none to be had. */
static uint64_t
fill(struct ct_capture *run, uint32_t pieces, const struct vector *from, uint64_t from_count)
{
  struct vector to = {(uint64_t)run->data, pieces * CT_CAPTURE_BYTES - sizeof(*run)};
  long got = read_own(&to, from, from_count);
  return got > 0 ? (uint64_t)got : 0;
}

static uint32_t
pieces_for(uint64_t bytes)
{
  return bytes >= CT_CAPTURE_DATA_MAX
             ? CT_CAPTURE_RUN_MAX
             : (uint32_t)((bytes + sizeof(struct ct_capture) + CT_CAPTURE_BYTES - 1) / CT_CAPTURE_BYTES);
}

void
agent_capture(uint32_t fd, uint64_t address, uint64_t count, uint32_t is_vector)
{
  struct ct_capture_pool *pool = capture_pool();
  uint32_t mode = __atomic_load_n(&pool->mode, __ATOMIC_RELAXED), lo, hi, tid;
  int all = 1;
  if (fd - 1 > 1 || mode == CT_CAPTURE_OFF || count == 0 || agent_is_silent() || agent_ring()->closed != 0 ||
      (is_vector && count > VECTORS_MAX) || (tid = own_tid()) == 0) {
    return;
  }
  __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi)); /* not before: a thread to which that is forbidden is not recorded */
  uint64_t given = is_vector ? size_of_vectors(address, count, &all) : count, bytes = 0;
  struct vector buffer = {address, count < CT_CAPTURE_DATA_MAX ? count : CT_CAPTURE_DATA_MAX};
  uint32_t pieces = pieces_for(all ? given : given + UNKNOWN_BYTES), index = CT_CAPTURE_PIECES;
  while (mode == CT_CAPTURE_ON && (index = take_run(pool, pieces)) == CT_CAPTURE_PIECES && pieces > 1) {
    pieces /= 2;
  }
  if (index != CT_CAPTURE_PIECES) {
    struct ct_capture *run = run_at(index);
    bytes = is_vector ? fill(run, pieces, (const struct vector *)address, count) : fill(run, pieces, &buffer, 1);
    if (bytes == 0) {
      give_back(pool, index, mask_of(pieces));
      return; /* nothing will come of the call either */
    }
    given = given > bytes ? given : bytes;
    run->tsc = (uint64_t)hi << 32 | lo;
    run->given = given;
    run->tid = tid;
    run->fd = (uint16_t)fd;
    run->pieces = (uint16_t)pieces;
    run->bytes = (uint32_t)bytes;
    /* release: pairs with the drain's acquire of the bit */
    __atomic_fetch_or(&pool->full_map[index / 64], 1ull << (index % 64), __ATOMIC_RELEASE);
    if (index >= BACKLOG_PIECES) {
      agent_wake_drain();
    }
  }
  __atomic_fetch_add(&pool->given[fd - 1], given, __ATOMIC_RELAXED);
  __atomic_fetch_add(&pool->dropped, mode == CT_CAPTURE_ON ? given - bytes : 0, __ATOMIC_RELAXED);
}
