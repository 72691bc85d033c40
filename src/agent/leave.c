/* SPDX-License-Identifier: MIT */
/*
 * The program is about to take gs, which hooks need: they go before that, and nothing more is recorded. The thread asks
 * the controller, which takes all out as at a detach, and releases it once no patch and no trampoline's return
 * address is left. Then whoever has another gs meets no hook.
 *
 * Likewise where it is about to map over memory of ours, or to take it away (remap.c). There the thread can go on only
 * when nobody else is in our code and all of it is unmapped, what it waits in too: so it gives its registers as they
 * were at the function's entry, and the controller sends it there.
 *
 * A forked child that nobody records has a copy of everything, and nobody to ask: it takes the patches back itself, and
 * puts the true return addresses back into their return-address slots. So does a thread whose controller is dead, or
 * cannot stop the process because somebody else debugs it. Other threads of the process run meanwhile; a patch is
 * written in one go, as far as the kernel does that. Many patches go with one system call: a debugger may stop at each.
 *
 * Runs on the caller's stack; signals are as they were.
 */
#include "agent/map.h"

#define WAIT_STEP_NS (100 * 1000 * 1000)
#define STEPS_MAX    600          /* a minute in all */
#define SPIN_TICKS   40000000000u /* where no system call may be made: 10 to 20 s */
#define O_RDWR       02
#define O_CLOEXEC    02000000
#define RUN_PAGES    64u
#define PIECES_MAX   128u /* 2 KiB of the caller's stack */

static uint64_t
ticks(void)
{
  uint32_t lo, hi;
  __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
  return (uint64_t)hi << 32 | lo;
}

/*
 * 1: the hooks are out. With a frame who has asked first does not come back from here when all goes well: its registers
 * are set by the controller once all of ours is unmapped.
 */
static int
ask(const struct ct_leave_frame *frame)
{
  struct ct_ring_header *r = agent_ring();
  uint32_t expected = CT_LEAVE_NONE;
  int silent = agent_is_silent();
  uint64_t since = ticks();
  struct agent_patience patience = agent_patience();
  if (r->closed != 0 && __atomic_load_n(&r->leave, __ATOMIC_ACQUIRE) == CT_LEAVE_NONE) {
    return 0;
  }
  uint64_t nobody = 0;
  int waits =
      frame != 0 && r->leave == CT_LEAVE_NONE &&
      __atomic_compare_exchange_n(&r->leave_frame, &nobody, (uint64_t)frame, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  /* release: pairs with the controller's acquire of PENDING */
  __atomic_compare_exchange_n(&r->leave, &expected, CT_LEAVE_PENDING, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  agent_ring_control_doorbell();
  for (uint32_t step = 0; step < STEPS_MAX && controller_answers();) {
    uint32_t state = __atomic_load_n(&r->leave, __ATOMIC_ACQUIRE);
    if (state == CT_LEAVE_DONE && !waits) {
      return 1;
    }
    if (state == CT_LEAVE_REFUSED) {
      return 0;
    }
    if (!silent) {
      step += (uint32_t)agent_wait(&r->leave, state, WAIT_STEP_NS, &patience);
    } else if (ticks() - since > SPIN_TICKS) {
      break;
    } else {
      __builtin_ia32_pause();
    }
  }
  return __atomic_load_n(&r->leave, __ATOMIC_ACQUIRE) == CT_LEAVE_DONE;
}

struct piece {
  uint64_t from, bytes; /* struct iovec */
};

/* Patches that lie near each other, and what lies in between, which is written as it is. */
struct gathered {
  uint64_t at, end; /* text that is written */
  uint32_t count;
  struct piece pieces[PIECES_MAX];
};

static void
write_gathered(long memory, struct gathered *all)
{
  uint64_t at = all->at;
  long bytes = (long)(all->end - all->at);
  if (all->count > 1 && agent_syscall(SYS_pwritev, memory, (long)all->pieces, all->count, (long)at, 0, 0) == bytes) {
    all->count = 0;
  }
  for (uint32_t i = 0; i < all->count; at += all->pieces[i++].bytes) {
    if (all->pieces[i].from != at) {
      agent_syscall(SYS_pwrite64, memory, (long)all->pieces[i].from, (long)all->pieces[i].bytes, (long)at, 0, 0);
    }
  }
  all->count = 0;
}

/* In address order. Pages that have no patch stay the file's. */
static void
gather(long memory, struct gathered *all, const struct ct_patch *patch)
{
  uint64_t at = patch->address;
  if (all->count + 2 > PIECES_MAX || at < all->end || at / CT_PAGE_BYTES - (all->end - 1) / CT_PAGE_BYTES > 1) {
    write_gathered(memory, all);
  }
  if (all->count == 0) {
    all->at = at;
  } else if (at != all->end) {
    all->pieces[all->count++] = (struct piece){all->end, at - all->end};
  }
  all->pieces[all->count++] = (struct piece){(uint64_t)patch->old, patch->length};
  all->end = at + patch->length;
}

static void
take_back_patches(long memory)
{
  struct gathered all;
  all.count = 0;
  all.end = 1;
  uint64_t count = __atomic_load_n(&agent_config.region_count, __ATOMIC_ACQUIRE);
  for (uint64_t i = 0; i < count && i < CT_REGION_MAX; i++) {
    const struct ct_region *region = &agent_config.regions[i];
    if (region->desc_count == 0 || region->hi == 0) {
      continue;
    }
    const struct ct_region_head *head = (const struct ct_region_head *)region->lo;
    const struct ct_patch *patches = (const struct ct_patch *)head->patches;
    for (uint64_t k = 0; k < head->patch_count; k++) {
      const struct ct_patch *patch = &patches[k];
      const uint8_t *now = (const uint8_t *)patch->address;
      uint32_t same = 0;
      while (same < patch->length && now[same] == patch->bytes[same]) {
        same++;
      }
      if (same == patch->length && !ct_patch_is_relay(patch)) {
        gather(memory, &all, patch);
      }
    }
    write_gathered(memory, &all);
  }
}

/* What of a page of a return store belongs to return-address slots that are there; they may lie on two pages. */
static void
put_back_page(uint64_t page)
{
  unsigned char ignored;
  int is_mapped = 0;
  for (uint64_t at = 0; at < CT_PAGE_BYTES; at += 8) {
    uint64_t ra_slot = page + at - (uint64_t)agent_config.store_delta, kept = *(const uint64_t *)(page + at);
    if (at == 0 || ra_slot % CT_PAGE_BYTES == 0) {
      is_mapped = agent_syscall(SYS_mincore, (long)(ra_slot & ~(uint64_t)(CT_PAGE_BYTES - 1)), CT_PAGE_BYTES,
                                (long)&ignored, 0, 0, 0) == 0;
    }
    if (is_mapped && kept != 0 && agent_is_return_point(*(uint64_t *)ra_slot)) {
      *(uint64_t *)ra_slot = kept;
    }
  }
}

static void
put_back_returns(void)
{
  const struct ct_stack_map *map = agent_map();
  unsigned char there[RUN_PAGES];
  for (uint32_t i = 0; i < map->chunk_count && i < CT_CHUNK_MAX; i++) {
    const struct ct_store_chunk *chunk = &map->chunks[i];
    uint32_t next;
    for (uint32_t page = 0; chunk->base != 0 && ct_store_chunk_run(chunk, CT_CHUNK_PAGES, 1, &page, &next);
         page = next) {
      next = next - page < RUN_PAGES ? next : page + RUN_PAGES;
      uint64_t at = chunk->base + (uint64_t)page * CT_PAGE_BYTES;
      if (agent_syscall(SYS_mincore, (long)at, (long)((next - page) * CT_PAGE_BYTES), (long)there, 0, 0, 0) != 0) {
        continue;
      }
      for (uint32_t k = 0; k < next - page; k++) {
        if ((there[k] & 1) != 0) {
          put_back_page(at + (uint64_t)k * CT_PAGE_BYTES);
        }
      }
    }
  }
}

static void
leave_alone(void)
{
  static const char path[] = "/proc/self/mem";
  long memory = agent_syscall(SYS_open, (long)path, O_RDWR | O_CLOEXEC, 0, 0, 0, 0);
  if (memory >= 0) {
    take_back_patches(memory);
    agent_syscall(SYS_close, memory, 0, 0, 0, 0, 0);
    put_back_returns();
  }
}

void
agent_leave(const struct ct_leave_frame *frame)
{
  int forked = *(const uint64_t *)(agent_config.controls + CT_CONTROL_OWN) == 0;
  if ((forked || !ask(frame)) && !agent_is_silent()) {
    leave_alone();
  }
}
