/* SPDX-License-Identifier: MIT */
/* Memory near a module for what we generate; see near_alloc.h. */
#include "hook/near_alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define REACH_MAX     (0x7fffffffull - (64ull << 20)) /* of rel32, less a margin */
#define LOW_ADDRESSES (1ull << 32)                    /* where programs at fixed addresses lie */
#define STACK_RESERVE (256ull << 20)                  /* left to the main stack for growing */
#define LOWEST        0x10000ull
#define HIGHEST       0x7ffffffff000ull

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static uint64_t
round_up(uint64_t value, uint64_t unit)
{
  return (value + unit - 1) & ~(unit - 1);
}

static uint64_t
page_down(uint64_t value)
{
  return value & ~(uint64_t)(CT_PAGE_BYTES - 1);
}

int
ct_near_announce(const struct ct_remote *remote, const struct ct_agent_layout *layout, enum ct_pending_kind kind,
                 uint64_t start, uint64_t bytes)
{
  struct ct_pending pending = {start, bytes};
  uint64_t at = layout->ring + offsetof(struct ct_ring_header, inside.pending) + (uint64_t)kind * sizeof(pending);
  return ct_process_write(remote->process, at, &pending, sizeof(pending));
}

/* Maps exactly there; *taken: somebody else was faster, look again. */
static int
map_at(const struct ct_remote *remote, const struct ct_agent_layout *layout, enum ct_pending_kind kind, uint64_t at,
       uint64_t size, bool *taken)
{
  int64_t result = 0;
  uint64_t args[6] = {
      at,           size, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE,
      (uint64_t)-1, 0};
  *taken = false;
  int code = ct_near_announce(remote, layout, kind, at, size);
  if (code != 0) {
    return code;
  }
  code = remote->syscall(remote->context, SYS_mmap, args, &result);
  if (code != 0) {
    return code;
  }
  *taken = result == -EEXIST;
  if (result != (int64_t)at) {
    return CT_ENOMEM;
  }
  uint64_t advice[6] = {at, size, MADV_DONTDUMP};
  return remote->syscall(remote->context, SYS_madvise, advice, &result);
}

/* An unused range of size bytes within reach of [lo, hi), 64 KiB aligned; 0 when there is none. */
static uint64_t
find_gap(const struct ct_mappings *mappings, uint64_t lo, uint64_t hi, uint64_t size)
{
  /* Downwards from the module. */
  for (size_t i = mappings->count + 1; i-- > 0;) {
    uint64_t top = i < mappings->count ? mappings->items[i].start : 0x7ffffffff000ull;
    uint64_t bottom = i > 0 ? mappings->items[i - 1].end : CT_NEAR_UNIT;
    if (top > lo) {
      continue;
    }
    uint64_t at = (top - CT_NEAR_UNIT) & ~(CT_NEAR_UNIT - 1);
    if (top < size + 2 * CT_NEAR_UNIT || at < size) {
      break;
    }
    at -= round_up(size, CT_NEAR_UNIT);
    if (hi - at > REACH_MAX) {
      break;
    }
    if (at >= bottom + CT_NEAR_UNIT) {
      return at;
    }
  }
  /* Upwards, with room for the heap. */
  for (size_t i = 0; i < mappings->count; i++) {
    uint64_t bottom = mappings->items[i].end;
    uint64_t top = i + 1 < mappings->count ? mappings->items[i + 1].start : 0x7ffffffff000ull;
    if (bottom < hi) {
      continue;
    }
    uint64_t room = hi < LOW_ADDRESSES ? CT_HEAP_RESERVE : 0;
    uint64_t at = round_up(bottom + room, CT_NEAR_UNIT);
    if (at + size - lo > REACH_MAX) {
      break;
    }
    if (at + size + CT_NEAR_UNIT <= top) {
      return at;
    }
  }
  return 0;
}

int
ct_near_alloc_region(const struct ct_remote *remote, const struct ct_agent_layout *layout, uint64_t lo, uint64_t hi,
                     uint64_t size, uint64_t *region, struct ct_diag *diag)
{
  int code = CT_ENOMEM;
  bool taken = true;
  for (int attempt = 0; attempt < 16 && taken; attempt++) {
    struct ct_mappings fresh, *mappings = attempt == 0 && remote->mappings != NULL ? remote->mappings : &fresh;
    code = mappings == &fresh ? ct_process_mappings(remote->process->pid, &fresh) : 0;
    if (code != 0) {
      return ct_fail(diag, code, "cannot read the mappings of process %d", (int)remote->process->pid);
    }
    uint64_t at = find_gap(mappings, lo, hi, size);
    if (mappings == &fresh) {
      ct_mappings_free(&fresh);
    }
    if (at == 0 && mappings != &fresh) {
      continue; /* it may be somewhere by now */
    }
    if (at == 0) {
      return ct_fail(diag, CT_ERANGE, "no room for trampolines within 2 GiB of the module");
    }
    code = map_at(remote, layout, CT_PENDING_REGION, at, size, &taken);
    if (code == 0) {
      *region = at;
      return remote->mappings != NULL ? ct_mappings_add(remote->mappings, at, round_up(size, CT_PAGE_BYTES)) : 0;
    }
  }
  return ct_fail(diag, code, "cannot map %llu bytes for trampolines: %s", (unsigned long long)size, ct_err_text(code));
}

/* A place for a stub in [lo, hi) on pages that are ours already. */
static uint64_t
stub_on_page(const struct ct_agent_layout *layout, uint64_t page, uint64_t lo, uint64_t hi)
{
  uint64_t first = lo > page ? lo : page;
  uint64_t last = page + CT_STUB_PAGES_BYTES - CT_STUB_BYTES;
  for (uint64_t at = first; at < hi && at <= last;) {
    uint64_t beyond = 0;
    for (size_t i = 0; i < layout->stub_count && beyond == 0; i++) {
      const struct ct_stub *stub = &layout->stubs[i];
      if (stub->owner != 0 && stub->address < at + CT_STUB_BYTES && at < stub->address + CT_STUB_BYTES) {
        beyond = stub->address + CT_STUB_BYTES;
      }
    }
    if (beyond == 0) {
      return at;
    }
    at = beyond;
  }
  return 0;
}

/* Unmapped pages with a place in [lo, hi); 0 when there are none. */
static uint64_t
find_stub_pages(const struct ct_mappings *mappings, uint64_t lo, uint64_t hi)
{
  for (size_t i = 0; i <= mappings->count; i++) {
    uint64_t bottom = i > 0 ? mappings->items[i - 1].end : LOWEST;
    uint64_t top = i < mappings->count ? mappings->items[i].start : HIGHEST;
    if (i < mappings->count && strcmp(mappings->items[i].path, "[stack]") == 0) {
      top = top > STACK_RESERVE ? top - STACK_RESERVE : 0;
    }
    uint64_t page = page_down(lo > bottom ? lo : bottom);
    if (page >= bottom && page + CT_STUB_PAGES_BYTES <= top && page < hi) {
      return page;
    }
  }
  return 0;
}

static int
add_stub_pages(const struct ct_remote *remote, struct ct_agent_layout *layout, uint64_t lo, uint64_t hi, uint64_t *page)
{
  uint64_t *pages = realloc(layout->stub_pages, (layout->stub_page_count + 1) * sizeof(*pages));
  if (pages == NULL) {
    return CT_ENOMEM;
  }
  layout->stub_pages = pages;
  bool taken = true;
  for (int attempt = 0; attempt < 16 && taken; attempt++) {
    struct ct_mappings mappings;
    int code = ct_process_mappings(remote->process->pid, &mappings);
    if (code != 0) {
      return code;
    }
    uint64_t at = find_stub_pages(&mappings, lo, hi);
    ct_mappings_free(&mappings);
    if (at == 0) {
      return CT_ERANGE;
    }
    code = map_at(remote, layout, CT_PENDING_OTHER, at, CT_STUB_PAGES_BYTES, &taken);
    if (code == 0) {
      layout->stub_pages[layout->stub_page_count++] = at;
      *page = at;
      return 0;
    }
  }
  return CT_ENOMEM;
}

int
ct_near_alloc_stub(const struct ct_remote *remote, struct ct_agent_layout *layout, uint32_t owner, uint64_t lo,
                   uint64_t hi, bool may_map, uint64_t *address, uint64_t *new_pages)
{
  uint64_t at = 0;
  *new_pages = 0;
  if (hi > HIGHEST || lo < LOWEST || lo >= hi) {
    return CT_ERANGE;
  }
  for (size_t i = 0; i < layout->stub_page_count && at == 0; i++) {
    at = stub_on_page(layout, layout->stub_pages[i], lo, hi);
  }
  if (at == 0) {
    int code = !may_map ? CT_ENOSPC : add_stub_pages(remote, layout, lo, hi, new_pages);
    if (code != 0) {
      return code;
    }
    at = stub_on_page(layout, *new_pages, lo, hi);
  }
  struct ct_stub *stub = NULL;
  for (size_t i = 0; i < layout->stub_count && stub == NULL; i++) {
    stub = layout->stubs[i].owner == 0 ? &layout->stubs[i] : NULL;
  }
  if (stub == NULL) {
    struct ct_stub *stubs = realloc(layout->stubs, (layout->stub_count + 1) * sizeof(*stubs));
    if (stubs == NULL) {
      return CT_ENOMEM;
    }
    layout->stubs = stubs;
    stub = &stubs[layout->stub_count++];
  }
  *stub = (struct ct_stub){at, owner};
  *address = at;
  return at != 0 ? 0 : CT_ERANGE;
}

void
ct_near_free_stubs(struct ct_agent_layout *layout, uint32_t owner)
{
  for (size_t i = 0; i < layout->stub_count; i++) {
    if (layout->stubs[i].owner == owner) {
      layout->stubs[i].owner = 0;
    }
  }
}

void
ct_agent_layout_free(struct ct_agent_layout *layout)
{
  free(layout->stub_pages);
  free(layout->stubs);
  memset(layout, 0, sizeof(*layout));
}
