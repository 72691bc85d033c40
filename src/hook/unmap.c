/* SPDX-License-Identifier: MIT */
/* Undoing an image, the end of it: pages are the file's own again, and what we mapped is unmapped. See undo.c. */
#include "hook/undo_internal.h"

#include "base/file.h"
#include "hook/near_alloc.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RUN_BYTES (256 * CT_PAGE_BYTES)
/* Pages that nobody has a copy of are given up with others when they are so few: one fault brings them back (the kernel
 * maps 64 KiB around a fault, fault_around_bytes). */
#define GAP_BYTES    (16 * CT_PAGE_BYTES)
#define SEARCH_BYTES (64ull << 20) /* of a mapping, whose size the program has selected */
#define RUNS_MAX     131072u       /* of return stores: a process has some 65,000 mappings */

int
undo_call(struct undo *undo, long number, uint64_t a, uint64_t b, uint64_t c)
{
  uint64_t args[6] = {a, b, c};
  int64_t result = 0;
  return ct_stopped_syscall(undo->stopped, number, args, &result);
}

/* Pages that are given up by one call; end 0: none. */
struct run {
  uint64_t start, end;
};

static int
end_run(struct undo *undo, struct run *run)
{
  int code = run->end != 0 ? undo_call(undo, SYS_madvise, run->start, run->end - run->start, MADV_DONTNEED) : 0;
  run->end = 0;
  return code;
}

static int
add_to_run(struct undo *undo, struct run *run, uint64_t page)
{
  int code = run->end != 0 && page - run->end > GAP_BYTES ? end_run(undo, run) : 0;
  if (run->end == 0) {
    run->start = page;
  }
  run->end = page + CT_PAGE_BYTES;
  return code;
}

/*
 * The pages in [lo, hi) that are the process's own copies and the same as the file's are given up. Not the one that the
 * thread stands in that makes our system calls: it would find nothing there when it comes back.
 */
static int
give_up_copies(struct undo *undo, int fd, const struct ct_mapping *mapping, uint64_t lo, uint64_t hi, struct run *run)
{
  uint64_t stands_in = ct_process_injection_area(undo->stopped->process) & ~(uint64_t)(CT_PAGE_BYTES - 1);
  uint8_t *memory = malloc(RUN_BYTES), *file = malloc(RUN_BYTES);
  int code = memory != NULL && file != NULL ? 0 : CT_ENOMEM;
  for (uint64_t at = lo; at < hi && code == 0;) {
    size_t bytes = hi - at < RUN_BYTES ? hi - at : RUN_BYTES;
    bool readable = ct_process_read(process_of(undo), at, memory, bytes) == 0;
    ssize_t got = readable ? pread(fd, file, bytes, (off_t)(mapping->offset + (at - mapping->start))) : -1;
    size_t have = got > 0 ? (size_t)got : 0;
    memset(file + have, 0, bytes - have); /* after the end of the file */
    for (size_t page = 0; page < bytes && code == 0; page += CT_PAGE_BYTES) {
      bool same = got > 0 && at + page != stands_in && memcmp(memory + page, file + page, CT_PAGE_BYTES) == 0;
      code = same ? add_to_run(undo, run, at + page) : end_run(undo, run);
    }
    at += bytes;
  }
  free(memory);
  free(file);
  return code;
}

static bool
is_patched(const struct undo *undo, const struct ct_mapping *mapping)
{
  for (size_t r = 0; r < undo->region_count; r++) {
    const struct region *region = &undo->regions[r];
    if (region->patch_count != 0 && region->patches[0].address < mapping->end &&
        region->patches[region->patch_count - 1].address >= mapping->start) {
      return true;
    }
  }
  return false;
}

static int
give_up_copies_of(struct undo *undo, const struct ct_mapping *mapping)
{
  char path[PATH_MAX + 64];
  pid_t pid = process_of(undo)->pid;
  int fd = ct_process_open_mapped(pid, mapping, path, sizeof(path), NULL);
  int code = 0;
  if (fd >= 0) {
    struct ct_pagemap map;
    struct run run = {0, 0};
    uint64_t at = mapping->start;
    ct_pagemap_open(&map, pid);
    while (code == 0 && at < mapping->end && !undo_is_late(undo)) {
      uint64_t window = mapping->end - at > SEARCH_BYTES ? at + SEARCH_BYTES : mapping->end;
      at = ct_pagemap_find(&map, at, window, true);
      if (at < window) {
        uint64_t end = ct_pagemap_find(&map, at, window, false);
        code = give_up_copies(undo, fd, mapping, at, end, &run);
        at = end;
      }
    }
    code = code == 0 ? end_run(undo, &run) : code;
    ct_pagemap_close(&map);
  }
  if (fd >= 0) {
    close(fd);
  }
  return code;
}

int
undo_give_up_copies(struct undo *undo)
{
  struct ct_mappings mappings;
  int code = ct_process_mappings(process_of(undo)->pid, &mappings);
  for (size_t i = 0; i < mappings.count && code == 0; i++) {
    const struct ct_mapping *mapping = &mappings.items[i];
    if (mapping->executable && !mapping->writable && !mapping->shared && mapping->inode != 0 &&
        is_patched(undo, mapping)) {
      code = give_up_copies_of(undo, mapping);
    }
  }
  ct_mappings_free(&mappings);
  return code;
}

static int
make_pending(const struct undo *undo, uint64_t start, uint64_t bytes)
{
  struct ct_pending pending = {start, bytes};
  return ct_process_write(process_of(undo), undo->found->ring + offsetof(struct ct_ring_header, inside.pending),
                          &pending, sizeof(pending));
}

static int
strike_out(const struct undo *undo, uint64_t published_at, size_t published_bytes)
{
  static const uint8_t nothing[sizeof(struct ct_region)];
  return ct_process_write(process_of(undo), published_at, nothing, published_bytes);
}

/*
 * Takes it out of the list, by which others find it, before its addresses can become somebody else's. It is pending
 * meanwhile.
 */
static int
unmap(struct undo *undo, uint64_t published_at, size_t published_bytes, uint64_t start, uint64_t bytes)
{
  if (start == 0 || bytes == 0) {
    return 0;
  }
  int code = make_pending(undo, start, bytes);
  code = code == 0 ? strike_out(undo, published_at, published_bytes) : code;
  return code == 0 ? undo_call(undo, SYS_munmap, start, bytes, 0) : code;
}

/* What was being mapped or unmapped when somebody was killed: it is ours if it is there, and no file's. */
static int
unmap_pending(struct undo *undo)
{
  struct ct_mappings mappings;
  int code = ct_process_mappings(process_of(undo)->pid, &mappings);
  for (size_t p = 0; p < sizeof(undo->found->header->inside.pending) / sizeof(struct ct_pending) && code == 0; p++) {
    const struct ct_pending *pending = &undo->found->header->inside.pending[p];
    bool is_ours = pending->bytes != 0;
    for (size_t i = 0; i < mappings.count && is_ours; i++) {
      const struct ct_mapping *mapping = &mappings.items[i];
      if (mapping->start < pending->start + pending->bytes && mapping->end > pending->start) {
        is_ours = mapping->start >= pending->start && mapping->end <= pending->start + pending->bytes &&
                  mapping->inode == 0 && mapping->path[0] == '\0';
      }
    }
    code = is_ours ? undo_call(undo, SYS_munmap, pending->start, pending->bytes, 0) : 0;
  }
  ct_mappings_free(&mappings);
  return code;
}

/* The chunk's pages go, those of one run after the other. */
static int
unmap_runs(struct undo *undo, const struct ct_store_chunk *chunk, size_t *calls)
{
  int code = 0;
  uint32_t next;
  for (uint32_t page = 0; code == 0 && ct_store_chunk_run(chunk, CT_CHUNK_PAGES, 1, &page, &next); page = next) {
    if (++*calls > RUNS_MAX) {
      return 0; /* no agent has made so many */
    }
    uint64_t at = chunk->base + (uint64_t)page * CT_PAGE_BYTES, bytes = (uint64_t)(next - page) * CT_PAGE_BYTES;
    code = make_pending(undo, at, bytes);
    code = code == 0 ? undo_call(undo, SYS_munmap, at, bytes, 0) : code;
  }
  return code;
}

static bool
is_whole(const struct ct_store_chunk *chunk)
{
  uint32_t page = 0, next;
  return !ct_store_chunk_run(chunk, CT_CHUNK_PAGES, 0, &page, &next);
}

/* Return stores: chunks that are all ours lie next to each other where stacks do, and go by one call. */
static int
unmap_stores(struct undo *undo)
{
  size_t calls = 0;
  for (size_t i = 0, end; i < undo->chunk_count; i = end) {
    if (undo_is_late(undo)) { /* whoever comes next finds the rest */
      undo->undone->kept = true;
      return 0;
    }
    const struct ct_store_chunk *first = &undo->chunks[i].is;
    bool whole = is_whole(first);
    for (end = i + 1; whole && end < undo->chunk_count && is_whole(&undo->chunks[end].is) &&
                      undo->chunks[end].is.base == first->base + (end - i) * CT_CHUNK_BYTES;
         end++) {
    }
    int code = whole ? make_pending(undo, first->base, (end - i) * CT_CHUNK_BYTES) : 0;
    for (size_t k = i; k < end && code == 0; k++) {
      code = strike_out(undo, undo->chunks[k].listed_at, sizeof(first->base));
    }
    if (code != 0) {
      return code;
    }
    code = whole ? undo_call(undo, SYS_munmap, first->base, (end - i) * CT_CHUNK_BYTES, 0)
                 : unmap_runs(undo, first, &calls);
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

/* The regions of trampolines, and the pages of stubs. */
static int
unmap_regions(struct undo *undo)
{
  uint64_t listed_at = undo->found->header->inside.config + offsetof(struct ct_agent_config, regions);
  int code = 0;
  for (size_t i = 0; i < undo->region_count && code == 0; i++) {
    const struct region *region = &undo->regions[i];
    code = unmap(undo, listed_at + region->index * sizeof(struct ct_region), sizeof(struct ct_region), region->start,
                 region->bytes);
  }
  for (size_t i = 0; i < undo->config->region_count && i < CT_REGION_MAX && code == 0; i++) {
    const struct ct_region *listed = &undo->config->regions[i];
    if (listed->desc_count == 0 && listed->desc == 0 && listed->hi - listed->lo == CT_STUB_PAGES_BYTES) {
      code = unmap(undo, listed_at + i * sizeof(struct ct_region), sizeof(struct ct_region), listed->lo,
                   CT_STUB_PAGES_BYTES);
    }
  }
  return code;
}

int
undo_unmap_all(struct undo *undo)
{
  const struct ct_inside *inside = &undo->found->header->inside;
  uint64_t listed_at = undo->found->ring + offsetof(struct ct_ring_header, inside), none = 0;
  /* In this order; the configuration's address goes before the agent, which holds it. */
  const struct {
    uint64_t listed_at, start, bytes;
  } parts[] = {
      {listed_at + offsetof(struct ct_inside, stacks), inside->stacks, inside->stacks_bytes},
      {listed_at + offsetof(struct ct_inside, table), inside->table, inside->table_bytes},
      {listed_at + offsetof(struct ct_inside, controls), inside->controls, inside->controls_bytes},
  };
  int code = unmap_pending(undo);
  if (code != 0 || (code = unmap_regions(undo)) != 0) {
    return code;
  }
  code = unmap_stores(undo);
  if (code != 0 || undo->undone->kept) {
    return code;
  }
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
    if ((code = unmap(undo, parts[i].listed_at, 8, parts[i].start, parts[i].bytes)) != 0) {
      return code;
    }
  }
  if (inside->config != 0) {
    code = ct_process_write(process_of(undo), listed_at + offsetof(struct ct_inside, config), &none, sizeof(none));
  }
  if (code != 0 ||
      (code = unmap(undo, listed_at + offsetof(struct ct_inside, agent), 8, inside->agent, inside->agent_bytes)) != 0) {
    return code;
  }
  return undo_call(undo, SYS_munmap, undo->found->ring, undo->found->ring_bytes, 0);
}
