/* SPDX-License-Identifier: MIT */
/*
 * A target that writes over all that it shares with contrail, and over all that contrail has put into it, while it is
 * recorded, attached to, detached from and cleaned; see tests/hostile.py. It does not matter what becomes of this
 * program: what is looked at is contrail.
 *
 *   scribble SEED MS WHAT WHO
 *
 * WHAT: letters of what is written over, see scribble; j: what a thread whose instructions are recorded shares with its
 * tracer, see scribble_itrace. WHO: t, a thread of the program; c, a forked child, which shares
 * the ring and leaves its parent in peace; q, a thread, and nothing else happens, so that no hook of the program's
 * comes upon what was written, and it lives on. The ring is looked for until it is there, so that it can be attached
 * to. What writes makes no calls that could be hooked: it is one function with raw system calls.
 */
#define _GNU_SOURCE
#include "ring/counters.h"
#include "ring/itrace.h"
#include "ring/itrace_stream.h"
#include "ring/layout.h"
#include "ring/stacks.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define INLINE  static inline __attribute__((always_inline))
#define HIGHEST 0x7ffffffff000ull

INLINE long
call(long number, long a, long b, long c, long d)
{
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
}

INLINE uint64_t
now_ms(void)
{
  struct timespec t;
  call(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&t, 0, 0);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

INLINE uint64_t
draw(uint64_t *seed)
{
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed;
}

#define LOW_END       0x80000000ull /* what a recorded thread shares with its tracer lies below */
#define RECORDS_MAX   8
#define RECORDS_BYTES 0x400000ull

static volatile uint64_t ring_at, ring_bytes, hog_at, walk_at, itrace_at;
static uint64_t records_at[RECORDS_MAX], records_count;
static uint64_t end_ms;
static volatile unsigned sum;

/* A word that somebody may take for something. */
INLINE uint64_t
word(uint64_t *seed, const struct ct_ring_header *ring)
{
  switch (draw(seed) % 16) {
  case 0:
    return 0;
  case 1:
    return ~0ull;
  case 2:
    return 5000;
  case 3:
    return 0x7fffffff;
  case 4:
    return 1ull << (draw(seed) % 64);
  case 5:
    return (uint64_t)ring + draw(seed) % ring_bytes;
  case 6:
    return HIGHEST;
  case 7:
    return 0x1000;
  case 8:
    return draw(seed) % 4096;
  case 9:
    return 1; /* init's process id */
  case 10:
    return (draw(seed) % 4096) << 32 | 1;
  default:
    return draw(seed) >> (draw(seed) % 64);
  }
}

INLINE void
ring_doorbells(struct ct_ring_header *ring)
{
  __atomic_fetch_add(&ring->control_doorbell, 1, __ATOMIC_RELAXED);
  call(SYS_futex, (long)&ring->control_doorbell, FUTEX_WAKE, 1, 0);
  __atomic_fetch_add(&ring->drain_doorbell, 1, __ATOMIC_RELAXED);
  call(SYS_futex, (long)&ring->drain_doorbell, FUTEX_WAKE, 1, 0);
}

/* The parts as they were at the beginning: the header does not say for long. */
struct parts {
  struct ct_ring_header *ring;
  uint8_t *base, *slots, *table, *segments, *crash, *handshakes, *captures, *config, *agent, *stacks;
  uint64_t hog;      /* memory that is there, at a place for a chunk of return stores */
  uint8_t *counters; /* NULL: there are none */
  uint64_t segment_count, detail_count, total, agent_bytes;
};

INLINE void
request(struct parts *p, uint64_t *seed)
{
  unsigned n = draw(seed) % 64;
  struct ct_slot *slot = (struct ct_slot *)p->slots + n;
  slot->tid = draw(seed) % 3 == 0 ? 1 : (uint32_t)draw(seed) % 70000;
  slot->request.kind = (uint32_t)draw(seed) % 4;
  slot->request.result = (int64_t)word(seed, p->ring);
  slot->request.arg[0] = word(seed, p->ring);
  slot->request.state = (slot->request.state & ~3u) + (draw(seed) % 4 == 0 ? (uint32_t)draw(seed) : CT_REQ_PENDING);
  p->ring->request_map[n / 64] |= 1ull << (n % 64);
  ring_doorbells(p->ring);
}

INLINE void
visit(struct parts *p, uint64_t *seed)
{
  unsigned n = draw(seed) % CT_HANDSHAKE_COUNT;
  struct ct_handshake *handshake = (struct ct_handshake *)(p->handshakes + n * CT_HANDSHAKE_BYTES);
  uint32_t pid = draw(seed) % 2 == 0 ? 1 : (uint32_t)draw(seed) % 70000;
  handshake->owner = (uint64_t)pid << 32 | CT_HANDSHAKE_TAKEN;
  handshake->pid = pid;
  handshake->tid = pid;
  handshake->kind = (uint32_t)draw(seed) % 3;
  handshake->path = word(seed, p->ring);
  handshake->hooks_version = draw(seed) % 2;
  handshake->state = CT_HANDSHAKE_PENDING;
  p->ring->handshake_map |= draw(seed) % 16 == 0 ? ~0ull : 1ull << n;
  ring_doorbells(p->ring);
}

INLINE void
crash(struct parts *p, uint64_t *seed)
{
  struct ct_crash *record = (struct ct_crash *)p->crash;
  for (unsigned i = 0; i < sizeof(*record) / 8; i++) {
    ((volatile uint64_t *)record)[i] = word(seed, p->ring);
  }
  record->signal = (uint32_t)draw(seed) % 70;
  record->registers[CT_CRASH_RIP] = draw(seed) % 2 == 0 ? (uint64_t)p->agent : word(seed, p->ring);
  record->state = CT_CRASH_PENDING;
  ring_doorbells(p->ring);
}

INLINE void
activation(struct parts *p, uint64_t *seed)
{
  struct ct_segment_entry *entry = (struct ct_segment_entry *)p->table + draw(seed) % p->segment_count;
  entry->tag = (uint32_t)draw(seed) % 5;
  entry->reserved = (uint32_t)word(seed, p->ring);
  entry->thread_seq = draw(seed) % 2 == 0 ? (uint32_t)draw(seed) % 8 : (uint32_t)draw(seed);
  entry->generation = draw(seed) % 8 == 0 ? (uint32_t)draw(seed) : (uint32_t)draw(seed) % 4;
  entry->state = CT_SEG_WORD(draw(seed) % 4, draw(seed) % (draw(seed) % 4 == 0 ? 0x4000 : 8), draw(seed) % 100000);
}

/* The lane of detail: which segments are whose, and records that claim to be of calls that there are. */
INLINE void
details(struct parts *p, uint64_t *seed)
{
  if (p->detail_count == 0) {
    return;
  }
  uint64_t segment = p->segment_count + draw(seed) % (draw(seed) % 4 == 0 ? p->detail_count : 1);
  struct ct_segment_entry *entry = (struct ct_segment_entry *)p->table + segment;
  uint8_t *record = p->segments + segment * CT_SEGMENT_STRIDE + (draw(seed) % CT_SEGMENT_BYTES & ~7ull);
  struct ct_slot *slot = (struct ct_slot *)p->slots + draw(seed) % 4;
  switch (draw(seed) % 4) {
  case 0:
    entry->thread_seq = draw(seed) % 2 == 0 ? (uint32_t)draw(seed) % 8 : (uint32_t)draw(seed);
    entry->generation = (uint32_t)draw(seed) % 4;
    entry->state = CT_SEG_WORD(draw(seed) % 4, draw(seed) % 8, draw(seed) % 8);
    break;
  case 1:
    slot->detail_skipped = word(seed, p->ring);
    slot->detail_overwritten = word(seed, p->ring);
    break;
  default: /* what is in a record, or its head */
    for (unsigned i = 0; i < 64; i++) {
      ((volatile uint64_t *)record)[i] ^= draw(seed) % 8 == 0 ? draw(seed) : 1ull << (draw(seed) % 64);
    }
    break;
  }
}

/* What is counted under a budget. */
INLINE void
counters(struct parts *p, uint64_t *seed)
{
  if (p->counters != NULL) {
    uint64_t slot = draw(seed) % (draw(seed) % 8 == 0 ? CT_SLOT_COUNT : 4);
    uint8_t *at = p->counters + slot * CT_COUNTERS_BYTES;
    uint32_t first = draw(seed) % 2 * CT_COUNTERS_BY_NEED;
    *(volatile uint64_t *)(at + ct_counter_calls_offset(first + (uint32_t)(draw(seed) % 1024))) = word(seed, p->ring);
    *(volatile uint32_t *)(at + ct_counter_recorded_offset(first + (uint32_t)(draw(seed) % 1024))) =
        (uint32_t)word(seed, p->ring);
  }
}

/* Ever deeper calls on ever more stacks. */
INLINE void
events(struct parts *p, uint64_t *seed)
{
  uint64_t segment = draw(seed) % (draw(seed) % 4 == 0 ? p->segment_count : 8);
  struct ct_ring_event *event = (struct ct_ring_event *)(p->segments + segment * CT_SEGMENT_STRIDE);
  uint32_t ra_slot = (uint32_t)draw(seed), tag = 1 + (uint32_t)draw(seed) % 3;
  unsigned at = draw(seed) % CT_SEGMENT_EVENTS, count = draw(seed) % 2 == 0 ? CT_SEGMENT_EVENTS - at : 16;
  for (unsigned i = 0; i < count && at + i < CT_SEGMENT_EVENTS; i++) {
    uint64_t w = draw(seed) % 4 == 0 ? draw(seed) : (uint64_t)(ra_slot -= 8) << 32 | draw(seed) % 100 << 4 | 4;
    event[at + i].tsc = draw(seed) % 8 == 0 ? draw(seed) : 0;
    event[at + i].word = (w & ~3ull) | tag;
  }
}

INLINE void
captures(struct parts *p, uint64_t *seed)
{
  struct ct_capture_pool *pool = (struct ct_capture_pool *)p->captures;
  unsigned n = draw(seed) % CT_CAPTURE_PIECES;
  struct ct_capture *capture = (struct ct_capture *)(p->captures + CT_PAGE_BYTES + n * CT_CAPTURE_BYTES);
  capture->pieces = (uint16_t)(draw(seed) % 40);
  capture->bytes = draw(seed) % 2 == 0 ? (uint32_t)word(seed, p->ring) : (uint32_t)draw(seed) % 40000;
  capture->fd = (uint16_t)draw(seed);
  capture->given = draw(seed);
  pool->full_map[n / 64] |= draw(seed) % 8 == 0 ? ~0ull : 1ull << (n % 64);
  ring_doorbells(p->ring);
}

/* The agent's configuration: words, and whole lists of ranges and of regions. */
INLINE void
config(struct parts *p, uint64_t *seed)
{
  uint64_t from = draw(seed) % (sizeof(struct ct_agent_config) / 16) * 16;
  uint64_t count = draw(seed) % 4 == 0 ? 256 : 1;
  call(SYS_mprotect, (long)p->config & ~4095l, (long)(sizeof(struct ct_agent_config) + 8192) & ~4095l,
       PROT_READ | PROT_WRITE, 0);
  for (uint64_t i = 0; i < count && from + 16 <= sizeof(struct ct_agent_config); i++, from += 16) {
    *(volatile uint64_t *)(p->config + from) = count > 1 ? 0x1000 : word(seed, p->ring);
    *(volatile uint64_t *)(p->config + from + 8) = count > 1 ? HIGHEST : word(seed, p->ring);
  }
  if (draw(seed) % 4 == 0) {
    struct ct_agent_config *own = (struct ct_agent_config *)p->config;
    for (int i = 0; i < 4000; i++) {
      own->regions[i] = (struct ct_region){(uint64_t)p->ring, (uint64_t)p->ring + p->total, (uint64_t)p->ring, 5};
    }
    own->region_count = draw(seed) % 2 == 0 ? 4000 : word(seed, p->ring);
    /* What is taken for the head of such a region. */
    struct ct_region_head *head = (struct ct_region_head *)p->ring;
    head->region_bytes = word(seed, p->ring);
    head->patches = (uint64_t)p->ring;
    head->patch_count = word(seed, p->ring);
  }
}

/*
 * The list of return stores: as many as there can be, all of them the same memory, in which there is something on each
 * page that looks like something. A walk over all that takes minutes.
 */
INLINE void
stores(struct parts *p, uint64_t *seed)
{
  struct ct_stack_map *map = (struct ct_stack_map *)p->stacks;
  if (p->stacks == NULL || p->hog == 0) {
    return;
  }
  for (uint32_t i = 0; i < CT_CHUNK_MAX; i++) {
    map->chunks[i].base = draw(seed) % 64 == 0 ? word(seed, p->ring) & ~(CT_CHUNK_BYTES - 1) : p->hog;
    for (unsigned n = 0; n < CT_CHUNK_PAGES / 64; n++) {
      map->chunks[i].pages[n] = draw(seed) % 16 == 0 ? draw(seed) : ~0ull;
    }
  }
  map->chunk_count = draw(seed) % 4 == 0 ? (uint32_t)word(seed, p->ring) : CT_CHUNK_MAX;
}

/* The heads of regions, as far as they can be made writable. */
INLINE void
regions(struct parts *p, uint64_t *seed)
{
  struct ct_agent_config *own = (struct ct_agent_config *)p->config;
  const struct ct_region *region = &own->regions[draw(seed) % 8];
  uint64_t at = region->lo & ~4095ull;
  if (at != 0 && call(SYS_mprotect, (long)at, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, 0) == 0) {
    struct ct_region_head *head = (struct ct_region_head *)at;
    head->patch_count = word(seed, p->ring);
    head->region_bytes = draw(seed) % 2 == 0 ? head->region_bytes : word(seed, p->ring);
    head->patches = draw(seed) % 2 == 0 ? head->patches : word(seed, p->ring);
  }
  if (region->desc != 0 &&
      call(SYS_mprotect, (long)region->desc & ~4095l, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, 0) == 0) {
    ((struct ct_hook_desc *)region->desc)[draw(seed) % 32].map_count = (uint8_t)draw(seed);
    ((volatile uint64_t *)region->desc)[draw(seed) % 512] = word(seed, p->ring);
  }
}

/* Lists of patches that take long to walk over; see make_walk. */
INLINE void
walks(struct parts *p)
{
  struct ct_agent_config *own = (struct ct_agent_config *)p->config;
  call(SYS_mprotect, (long)p->config & ~4095l, (long)(sizeof(struct ct_agent_config) + 8192) & ~4095l,
       PROT_READ | PROT_WRITE, 0);
  for (int i = 0; walk_at != 0 && i < CT_REGION_MAX; i++) {
    own->regions[i] = (struct ct_region){walk_at, walk_at + CT_PAGE_BYTES, walk_at, 5};
  }
  own->region_count = CT_REGION_MAX;
}

/* Holes, and attempts to cut it off. */
INLINE void
holes(struct parts *p, uint64_t *seed)
{
  uint64_t from = draw(seed) % p->total & ~4095ull, bytes = draw(seed) % 3 == 0 ? p->total - from : 4096;
  call(SYS_madvise, (long)(p->base + from), (long)bytes, MADV_REMOVE, 0);
  char path[64] = "/proc/self/map_files/";
  uint64_t ends[2] = {ring_at, ring_at + ring_bytes};
  char *to = path + 21;
  for (int i = 0; i < 2; i++) {
    for (int shift = 44; shift >= 0; shift -= 4) {
      *to++ = "0123456789abcdef"[ends[i] >> shift & 15];
    }
    *to++ = i == 0 ? '-' : '\0';
  }
  long fd = call(SYS_open, (long)path, O_RDWR, 0, 0);
  if (fd >= 0) {
    call(SYS_ftruncate, fd, draw(seed) % 2 == 0 ? 0 : 8192, 0, 0);
    call(SYS_ftruncate, fd, 1l << 40, 0, 0);
    call(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (long)from, (long)bytes);
    call(SYS_close, fd, 0, 0, 0);
  }
}

/* One switch of what can be spoilt, longer than others. */
INLINE void
scribble(uint64_t seed, const char *what)
{
  struct ct_ring_header *ring = (struct ct_ring_header *)ring_at;
  uint8_t *base = (uint8_t *)ring;
  struct parts p = {.ring = ring,
                    .base = base,
                    .slots = base + ring->slots_offset,
                    .table = base + ring->table_offset,
                    .segments = base + ring->segments_offset,
                    .crash = base + ring->crash_offset,
                    .handshakes = base + ring->handshakes_offset,
                    .captures = base + ring->capture_offset,
                    .config = (uint8_t *)ring->inside.config,
                    .agent = (uint8_t *)ring->inside.agent,
                    .stacks = (uint8_t *)ring->inside.stacks,
                    .hog = hog_at,
                    .counters = ring->counters_offset != 0 ? base + ring->counters_offset : NULL,
                    .segment_count = ring->segment_count,
                    .detail_count = ring->detail_count,
                    .total = ring->total_bytes,
                    .agent_bytes = ring->inside.agent_bytes};
  uint64_t kinds = 0;
  while (what[kinds] != '\0') {
    kinds++;
  }
  for (uint64_t turn = 0; (turn & 63) != 0 || now_ms() < end_ms; turn++) {
    uint64_t at;
    switch (what[draw(&seed) % kinds]) {
    case 'h': /* the header */
      at = 16 + draw(&seed) % (sizeof(*ring) - 24);
      *(volatile uint64_t *)(base + (at & ~7ull)) = word(&seed, ring);
      break;
    case 'n': /* ... what counts and where things lie */
      ring->segment_count = (uint32_t)word(&seed, ring);
      ((volatile uint64_t *)&ring->tids_offset)[draw(&seed) % 5] = word(&seed, ring);
      ring->crash_offset = ring->handshakes_offset = ring->capture_offset = word(&seed, ring);
      break;
    case 'i': /* ... what is inside */
      ((volatile uint64_t *)&ring->inside)[draw(&seed) % (sizeof(ring->inside) / 8)] = word(&seed, ring);
      break;
    case 'q':
      request(&p, &seed);
      break;
    case 'v':
      visit(&p, &seed);
      break;
    case 'k':
      crash(&p, &seed);
      break;
    case 'a':
      activation(&p, &seed);
      break;
    case 'e':
      events(&p, &seed);
      break;
    case 'p':
      captures(&p, &seed);
      break;
    case 'd':
      details(&p, &seed);
      break;
    case 'b':
      counters(&p, &seed);
      break;
    case 'c':
      config(&p, &seed);
      break;
    case 'r':
      regions(&p, &seed);
      break;
    case 't':
      stores(&p, &seed);
      break;
    case 'g': /* one new thread after the other */
      for (uint64_t n = turn * 8; n < turn * 8 + 8; n++) {
        struct ct_segment_entry *entry = (struct ct_segment_entry *)p.table + n % p.segment_count;
        *entry = (struct ct_segment_entry){.tag = 1, .reserved = 16, .generation = (uint32_t)n};
        __atomic_store_n(&entry->state, CT_SEG_WORD(CT_SEG_FULL, n % 64, n), __ATOMIC_RELEASE);
      }
      ring_doorbells(ring);
      break;
    case 'w':
      walks(&p);
      break;
    case 'm':
      holes(&p, &seed);
      break;
    default: /* 's': anywhere */
      at = 16 + draw(&seed) % (p.total - 32);
      *(volatile uint64_t *)(base + (at & ~7ull)) = word(&seed, ring);
      break;
    }
    if (draw(&seed) % 512 == 0) {
      struct timespec nap = {0, 1000000};
      call(SYS_nanosleep, (long)&nap, 0, 0, 0);
    }
  }
}

/* ---- of a thread whose instructions are recorded ---- */

/* A request, mostly of a kind that there is: what the tracer is asked for, and with which numbers. */
INLINE void
ask_tracer(struct ct_itrace_slots *slots, uint64_t *seed)
{
  static const uint16_t calls[] = {SYS_read,   SYS_readv,  SYS_recvmsg, SYS_recvmmsg, SYS_poll,
                                   SYS_mmap,   SYS_mremap, SYS_munmap,  SYS_ioctl,    SYS_clone,
                                   SYS_clone3, SYS_select, SYS_mprotect};
  for (unsigned i = 0; i < 16; i++) {
    slots->regs[i] = draw(seed) % 2 == 0 ? (uint64_t)slots : draw(seed) >> (draw(seed) % 64);
  }
  slots->regs[0] = draw(seed) % 4 == 0 ? draw(seed) % 500 : calls[draw(seed) % (sizeof(calls) / sizeof(calls[0]))];
  slots->call = (uint32_t)slots->regs[0];
  slots->call_kind = (uint32_t)draw(seed) % 3;
  slots->exit = (uint32_t)draw(seed) % (draw(seed) % 4 == 0 ? 0x10000 : 64);
  slots->target = draw(seed) % 2 == 0 ? (uint64_t)slots : draw(seed) >> (draw(seed) % 64);
  slots->spill_place += draw(seed) % 4 == 0 ? draw(seed) % 4096 : 0;
  slots->request = (uint32_t)draw(seed) % 3;
  slots->doorbell++;
  call(SYS_futex, (long)&slots->doorbell, FUTEX_WAKE, 1, 0);
}

/* Records that are being packed: words of units, events, parts and lengths. */
INLINE void
spoil_records(uint64_t *seed)
{
  uint64_t at = records_at[draw(seed) % records_count];
  volatile uint32_t *record = (volatile uint32_t *)(at + draw(seed) % (draw(seed) % 4 == 0 ? RECORDS_BYTES : 0x10000));
  for (unsigned i = 0; i < 8; i++) {
    uint32_t kind = (uint32_t)draw(seed) % 8;
    record[i] = draw(seed) % 4 == 0   ? CT_STREAM_PART
                : draw(seed) % 3 == 0 ? CT_STREAM_EVENT | kind
                : draw(seed) % 2 == 0 ? (uint32_t)draw(seed) % 4096
                                      : (uint32_t)draw(seed);
  }
}

/* By lot of records and times alone, with which the thread lives on, or of all. */
INLINE void
scribble_itrace(uint64_t seed)
{
  uint8_t *base = (uint8_t *)itrace_at;
  int is_gentle = (seed >> 20 & 1) != 0;
  struct ct_itrace_slots *slots = (struct ct_itrace_slots *)base;
  for (uint64_t turn = 0; (turn & 63) != 0 || now_ms() < end_ms; turn++) {
    uint64_t at = draw(&seed) % CT_ITRACE_SHARED_BYTES & ~7ull;
    switch (is_gentle ? 3 + draw(&seed) % 2 * 2 : draw(&seed) % 8) {
    case 0:
    case 1:
      ask_tracer(slots, &seed);
      break;
    case 2: /* a word of the slots */
      ((volatile uint64_t *)slots)[draw(&seed) % (sizeof(*slots) / 8)] = draw(&seed) >> (draw(&seed) % 64);
      break;
    case 3: /* blocks and their times */
      at = is_gentle ? CT_ITRACE_STAMPS_AT : CT_ITRACE_BLOCKS_AT;
      at += draw(&seed) % (CT_ITRACE_SHARED_BYTES - at);
      *(volatile uint64_t *)(base + (at & ~7ull)) = draw(&seed) >> (draw(&seed) % 64);
      break;
    case 4: /* anywhere: where branches go, which calls are looked at */
      *(volatile uint64_t *)(base + at) = draw(&seed) % 2 == 0 ? 0x0101010101010101ull : draw(&seed);
      break;
    default:
      if (records_count != 0) {
        spoil_records(&seed);
      }
      break;
    }
    if (draw(&seed) % 64 == 0) {
      struct timespec nap = {0, 100000};
      call(SYS_nanosleep, (long)&nap, 0, 0, 0);
    }
  }
}

__attribute__((noinline)) static unsigned
leaf(unsigned n)
{
  return sum += n;
}

__attribute__((noinline)) static unsigned
nested(unsigned n)
{
  return n == 0 ? leaf(n) : nested(n - 1) + leaf(n);
}

struct job {
  uint64_t seed, begin_ms;
  const char *what;
};

static void *
scribbling_thread(void *argument)
{
  struct job *job = argument;
  if (itrace_at != 0) {
    scribble_itrace(job->seed);
  } else {
    scribble(job->seed, job->what);
  }
  call(SYS_exit_group, 0, 0, 0, 0);
  return NULL;
}

static void *
calling_thread(void *argument)
{
  (void)argument;
  for (unsigned n = 0;; n++) {
    nested(n % 20);
    if (n % 10000 == 0) {
      dprintf(1, "%u\n", n);
    }
    if (n % 50000 == 25000) {
      pid_t child = fork();
      if (child == 0) {
        nested(3);
        _exit(0);
      }
      waitpid(child, NULL, 0);
    }
  }
  return NULL;
}

/* A region with as many patches as are believed, each of them on a page of its own. */
static void
make_walk(void)
{
  enum { PATCHES = 1 << 20, APART = 2 * CT_PAGE_BYTES };
  uint64_t bytes = CT_PAGE_BYTES + (uint64_t)PATCHES * sizeof(struct ct_patch);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  uint8_t *region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  uint8_t *text = mmap(NULL, (uint64_t)PATCHES * APART, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (region == MAP_FAILED || text == MAP_FAILED) {
    return;
  }
  struct ct_region_head *head = (struct ct_region_head *)region;
  struct ct_patch *patches = (struct ct_patch *)(region + CT_PAGE_BYTES);
  head->region_bytes = bytes;
  head->patches = (uint64_t)patches;
  head->patch_count = PATCHES;
  for (uint64_t i = 0; i < PATCHES; i++) {
    patches[i] = (struct ct_patch){.address = (uint64_t)text + i * APART, .length = 5, .bytes = "walk"};
  }
  walk_at = (uint64_t)region;
}

static void
make_hog(void)
{
  uint64_t bytes = 2 * CT_CHUNK_BYTES;
  uint64_t at = (uint64_t)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  hog_at = (at + CT_CHUNK_BYTES - 1) & ~(CT_CHUNK_BYTES - 1);
  memset((void *)hog_at, 0x41, CT_CHUNK_BYTES);
}

/* What a recorded thread shares with its tracer, and the segments of its records; false: there is none. */
static int
find_itrace(void)
{
  char line[512], mode[8];
  FILE *maps = fopen("/proc/self/maps", "re");
  unsigned long from, to;
  records_count = 0;
  while (fgets(line, sizeof(line), maps) != NULL) {
    if (strstr(line, "/memfd:" CT_RING_NAME " ") == NULL || sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3) {
      continue;
    }
    if (to <= LOW_END && mode[1] == 'w') {
      itrace_at = from;
    } else if (itrace_at != 0 && mode[1] == 'w' && to - from > RECORDS_BYTES && records_count < RECORDS_MAX) {
      records_at[records_count++] = from;
    }
  }
  fclose(maps);
  return itrace_at != 0;
}

/* A thread whose instructions are recorded: it does something, and makes system calls that write. */
static void
run_recorded(struct job *job)
{
  pthread_t thread;
  char bytes[64];
  int pair[2];
  if (pipe(pair) != 0) {
    return;
  }
  for (unsigned n = 0; !find_itrace() && now_ms() < end_ms + 60000; n++) {
    nested(n % 10);
    usleep(1000);
  }
  if (itrace_at == 0) {
    return;
  }
  end_ms += now_ms() - job->begin_ms;
  pthread_create(&thread, NULL, scribbling_thread, job);
  for (unsigned n = 0; now_ms() < end_ms + 20; n++) {
    nested(n % 20);
    if (write(pair[1], &n, sizeof(n)) == sizeof(n) && read(pair[0], bytes, sizeof(bytes)) != sizeof(n)) {
      break;
    }
  }
}

/* With other mappings of that name after it, as a dead session would leave them: the first one. */
static void
find_ring(void)
{
  char line[512];
  FILE *maps = fopen("/proc/self/maps", "re");
  unsigned long from, to;
  while (fgets(line, sizeof(line), maps) != NULL) {
    if (strstr(line, "/memfd:" CT_RING_NAME " ") != NULL && sscanf(line, "%lx-%lx", &from, &to) == 2) {
      ring_at = ring_at == 0 ? from : ring_at;
      ring_bytes = to - ring_at;
    }
  }
  fclose(maps);
}

int
main(int argc, char **argv)
{
  if (argc != 5) {
    return 2;
  }
  struct job job = {strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ull | 1, now_ms(), argv[3]};
  uint64_t ms = strtoull(argv[2], NULL, 10), limit = now_ms() + 60000;
  pthread_t threads[2];
  signal(SIGCHLD, SIG_DFL);
  printf("%d\n", (int)getpid());
  fflush(stdout);
  if (argv[3][0] == 'j') {
    end_ms = now_ms() + ms;
    run_recorded(&job);
    call(SYS_exit_group, 0, 0, 0, 0);
  }
  while (ring_at == 0 && now_ms() < limit) {
    find_ring();
    usleep(ring_at == 0 ? 5000 : 1000);
  }
  if (ring_at == 0) {
    return 3;
  }
  if (strchr(argv[3], 't') != NULL) {
    make_hog();
  }
  if (strchr(argv[3], 'w') != NULL) {
    make_walk();
  }
  end_ms = now_ms() + ms;
  while (((struct ct_ring_header *)ring_at)->inside.config == 0 && now_ms() < end_ms) {
    usleep(1000);
  }
  usleep((unsigned)(job.seed >> 40) % 30000);
  if (argv[4][0] != 'q') {
    pthread_create(&threads[0], NULL, calling_thread, NULL);
  }
  pid_t child = argv[4][0] == 'c' ? fork() : -1;
  if (child == 0) {
    scribble(job.seed, job.what);
    call(SYS_exit_group, 0, 0, 0, 0);
  }
  if (child < 0) {
    pthread_create(&threads[1], NULL, scribbling_thread, &job);
  }
  struct timespec nap = {0, 2000000};
  while (now_ms() < end_ms + 20) {
    call(SYS_nanosleep, (long)&nap, 0, 0, 0);
  }
  call(SYS_exit_group, 0, 0, 0, 0);
}
