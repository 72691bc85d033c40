/* SPDX-License-Identifier: MIT */
/* See space.h. */
#include "itrace/space.h"

#include "base/test_point.h"
#include "itrace/written.h"
#include "process/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define PAGE_BYTES   4096ull
#define SHARED_BYTES CT_SPACE_SHARED_BYTES
#define LOW_END      0x7ff00000ull
#define LOW_START    0x100000ull
#define APART        (1ull << 30) /* a region from the code it is for: libraries and the heap grow in between */
#define NEAR_MAX     (1600ull << 20)
#define USER_END     0x7ffffffff000ull
/*
 * Segments of records are looked for so far below where the kernel puts libraries, and downwards: there sanitizers let
 * a program have mappings of its own, and nowhere else (ThreadSanitizer from 0x7e8000000000 on). In the legacy layout,
 * where libraries lie elsewhere, below a fixed place.
 */
#define SEGMENTS_BELOW  (32ull << 30)
#define SEGMENTS_LEGACY 0x7eb000000000ull
#define USUAL_LOW       0x7e9000000000ull
#define REGION_MOST     (128ull << 20)
#define REGION_LEAST    (2ull << 20)
#define SLACK           (1ull << 20) /* after a window */
#define TRIES_MAX       16
#define HIGH_FD         1000

static int
call(struct ct_itrace_space *space, long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
     int64_t *result)
{
  uint64_t args[6] = {a, b, c, d, e, f};
  return ct_traced_syscall(space->process, number, args, result);
}

/* The translated code of another thread. */
static bool
is_ours(const struct ct_mapping *mapping)
{
  static const char name[] = "/memfd:contrail ";
  return mapping->shared && strncmp(mapping->path, name, sizeof(name) - 1) == 0;
}

/* Is [start, start + size) free, and a page on either side, or something of ours? */
static bool
is_free(const struct ct_mappings *mappings, uint64_t start, uint64_t size)
{
  for (size_t i = 0; i < mappings->count; i++) {
    uint64_t apart = is_ours(&mappings->items[i]) ? 0 : PAGE_BYTES;
    if (mappings->items[i].start < start + size + apart && mappings->items[i].end + apart > start) {
      return false;
    }
  }
  return true;
}

static int
map_at(struct ct_itrace_space *space, uint64_t address, uint64_t size, int prot, uint64_t offset)
{
  int64_t got = 0, ignored = 0;
  int code = call(space, SYS_mmap, address, size, (uint64_t)prot, MAP_SHARED | MAP_FIXED_NOREPLACE, (uint64_t)space->fd,
                  offset, &got);
  if (code != 0) {
    return code;
  }
  if (got < 0 || (uint64_t)got != address) {
    if (got >= 0) {
      call(space, SYS_munmap, (uint64_t)got, size, 0, 0, 0, 0, &ignored);
    }
    return got == -EEXIST ? CT_EEXIST : CT_ENOMEM;
  }
  call(space, SYS_madvise, address, size, MADV_DONTFORK, 0, 0, 0, &ignored);
  call(space, SYS_madvise, address, size, MADV_DONTDUMP, 0, 0, 0, &ignored);
  return 0;
}

static int
map_shared(struct ct_itrace_space *space, const struct ct_mappings *mappings, struct ct_diag *diag)
{
  for (uint64_t at = LOW_END - SHARED_BYTES; at > LOW_START; at -= 1ull << 20) {
    if (is_free(mappings, at, SHARED_BYTES)) {
      int code = map_at(space, at, SHARED_BYTES, PROT_READ | PROT_WRITE, 0);
      space->shared = code == 0 ? (uint32_t)at : 0;
      if (code == CT_EEXIST) {
        continue;
      }
      if (code != CT_ENOMEM) {
        return code;
      }
      break;
    }
  }
  return ct_fail(diag, CT_ENOMEM, "the process has no room below 2 GiB for what its thread and the tracer share");
}

/* A free place for so many bytes, a power of two, near pc, below it if there is one. 0: none. */
static uint64_t
place_near(const struct ct_mappings *mappings, uint64_t pc, uint64_t bytes)
{
  for (uint64_t away = APART; away < NEAR_MAX; away += bytes) {
    uint64_t below = (pc - away) & ~(bytes - 1), above = (pc + away) & ~(bytes - 1);
    if (pc > away + LOW_START && is_free(mappings, below, bytes)) {
      return below;
    }
    if (above + bytes < USER_END && is_free(mappings, above, bytes)) {
      return above;
    }
  }
  return 0;
}

/* Of [start, end), what is in no mapping. */
static uint64_t
free_bytes(const struct ct_mappings *mappings, uint64_t start, uint64_t end)
{
  uint64_t bytes = end - start;
  for (size_t i = 0; i < mappings->count; i++) {
    uint64_t from = mappings->items[i].start > start ? mappings->items[i].start : start;
    uint64_t to = mappings->items[i].end < end ? mappings->items[i].end : end;
    bytes -= from < to ? to - from : 0;
  }
  return bytes;
}

/*
 * The size of a region near pc. There is room for some 1200 MiB in all, or for half of that where one side is taken. A
 * thread that does not get enough makes the same units again and again, as all are forgotten when its region is full;
 * large programs want up to 100 MiB. So whoever comes first gets a part of what is there, and what is left then is for
 * many: some 170 threads at a time. In a crowd each has its share.
 */
static uint64_t
choose_region_bytes(const struct ct_mappings *mappings, uint64_t pc, uint32_t crowd)
{
  const uint64_t kept = 512ull << 20, small = 4ull << 20, last = 256ull << 20;
  uint64_t room = free_bytes(mappings, pc > NEAR_MAX ? pc - NEAR_MAX : 0, pc > APART ? pc - APART : 0) +
                  free_bytes(mappings, pc + APART, pc + NEAR_MAX);
  uint64_t share = crowd != 0 ? room / 3 * 2 / crowd : room > kept ? (room - kept) / 4 : 0, size = REGION_MOST;
  uint64_t least = crowd != 0 || room < last ? REGION_LEAST : small;
  while (size > least && size > share) {
    size /= 2;
  }
  return size;
}

/* Smaller than it is to be, if there is no such room: what tracers that were killed have left may be in the way. */
static int
try_region(struct ct_itrace_space *space, const struct ct_mappings *mappings, uint64_t pc, struct ct_diag *diag)
{
  uint64_t size = choose_region_bytes(mappings, pc, space->crowd), at = 0;
  uint64_t offset = SHARED_BYTES + space->region_count * REGION_MOST;
  int code = CT_ENOMEM;
  while (space->region_count < CT_CACHE_REGIONS && size >= REGION_LEAST && code == CT_ENOMEM) {
    at = place_near(mappings, pc, size);
    code = at != 0 ? map_at(space, at, size, PROT_READ | PROT_EXEC, offset) : CT_ENOMEM;
    size /= code == CT_ENOMEM ? 2 : 1;
  }
  if (at == 0) {
    return ct_fail(diag, CT_ENOMEM, "no room for translated code near 0x%llx", (unsigned long long)pc);
  }
  if (code == 0) {
    code = ct_code_cache_add_region(space->cache, at, space->bytes + offset, size);
  }
  if (code != 0) {
    return ct_fail(diag, code, "the process cannot map translated code (%s)", ct_err_text(code));
  }
  space->region_sizes[space->region_count] = size;
  space->regions[space->region_count++] = at;
  return 0;
}

/* Other threads may map something at the place that was free just before. */
static int
add_region(struct ct_itrace_space *space, const struct ct_mappings *mappings, uint64_t pc, struct ct_diag *diag)
{
  int code = try_region(space, mappings, pc, diag);
  for (int tries = 0; code == CT_EEXIST && tries < TRIES_MAX; tries++) {
    struct ct_mappings fresh;
    code = ct_process_mappings(space->process->pid, &fresh);
    code = code == 0 ? try_region(space, &fresh, pc, diag) : code;
    ct_mappings_free(&fresh);
  }
  return code;
}

/* Those that the tracer looks at before they are made; see itrace/syscalls.c. */
static void
choose_syscalls(struct ct_itrace_space *space)
{
  static const uint16_t seen[] = {SYS_rt_sigreturn,  SYS_clone,  SYS_fork,       SYS_vfork,    SYS_clone3, SYS_execve,
                                  SYS_execveat,      SYS_munmap, SYS_mmap,       SYS_mprotect, SYS_mremap, SYS_shmat,
                                  SYS_pkey_mprotect, SYS_shmdt,  SYS_arch_prctl, SYS_rseq,     SYS_prctl,  SYS_seccomp};
  uint8_t *bytes = (uint8_t *)space->slots + CT_ITRACE_SYSCALLS_AT;
  memset(bytes, CT_ITRACE_CALL_QUIET, CT_ITRACE_SYSCALLS);
  if (space->block_bytes != 0) {
    ct_mark_writing_calls(bytes, CT_ITRACE_SYSCALLS, CT_ITRACE_CALL_WRITES);
  }
  for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++) {
    bytes[seen[i]] = CT_ITRACE_CALL_SEEN;
  }
}

/* ---- records ---- */

static uint64_t
window_bytes(const struct ct_itrace_space *space)
{
  return CT_ITRACE_BLOCKS * space->block_bytes;
}

uint64_t
ct_space_segment_bytes(const struct ct_itrace_space *space)
{
  return window_bytes(space) - space->block_bytes + SLACK;
}

static uint64_t
regions_end(void)
{
  return SHARED_BYTES + CT_CACHE_REGIONS * REGION_MOST;
}

static uint64_t
choose_segments(struct ct_itrace_space *space)
{
  int64_t at = 0, ignored;
  if (call(space, SYS_mmap, 0, PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, ~0ull, 0, &at) != 0 || at < 0) {
    return SEGMENTS_LEGACY;
  }
  call(space, SYS_munmap, (uint64_t)at, PAGE_BYTES, 0, 0, 0, 0, &ignored);
  return (uint64_t)at > USUAL_LOW + SEGMENTS_BELOW && (uint64_t)at < USER_END ? (uint64_t)at - SEGMENTS_BELOW
                                                                              : SEGMENTS_LEGACY;
}

static int
add_segments(struct ct_itrace_space *space, const struct ct_mappings *mappings, struct ct_diag *diag)
{
  uint64_t window = window_bytes(space), at = choose_segments(space) & ~(4 * window - 1);
  for (uint32_t i = 0; i < CT_SEGMENTS; i++, at -= 4 * window) {
    uint64_t offset = regions_end() + i * (window + SLACK);
    while (at > USER_END / 4 && !is_free(mappings, at, window + SLACK)) {
      at -= 4 * window;
    }
    int code = map_at(space, at, window + SLACK, PROT_READ | PROT_WRITE, offset);
    for (int tries = 0; code == CT_EEXIST && tries < TRIES_MAX; tries++) {
      at -= 4 * window;
      code = map_at(space, at, window + SLACK, PROT_READ | PROT_WRITE, offset);
    }
    if (code != 0) {
      return ct_fail(diag, code, "the process has no room for records");
    }
    space->segments[i] =
        (struct ct_record_segment){at + space->block_bytes, space->bytes + offset + space->block_bytes};
  }
  return 0;
}

/*
 * The program's other threads go on, and get the lowest free number for each file they open: the one that we hold while
 * we map shall be none that they would get, as far as may be.
 */
static int
raise_fd(struct ct_itrace_space *space, int fd)
{
  int64_t high = -1, ignored;
  if (call(space, SYS_fcntl, (uint64_t)fd, F_DUPFD_CLOEXEC, HIGH_FD, 0, 0, 0, &high) != 0 || high < 0) {
    return fd;
  }
  call(space, SYS_close, (uint64_t)fd, 0, 0, 0, 0, 0, &ignored);
  return (int)high;
}

static void
close_memory(struct ct_itrace_space *space)
{
  int64_t ignored;
  if (space->fd >= 0) {
    call(space, SYS_close, (uint64_t)space->fd, 0, 0, 0, 0, 0, &ignored);
  }
  space->fd = -1;
}

static int
make_memory(struct ct_itrace_space *space, struct ct_diag *diag)
{
  int64_t fd = -1;
  uint64_t name = ct_process_injection_name(space->process);
  int code = call(space, SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING, 0, 0, 0, 0, &fd);
  if (code != 0 || fd < 0) {
    return ct_fail(diag, code != 0 ? code : CT_EIO, "the process cannot make shared memory: %s",
                   code != 0 ? ct_err_text(code) : strerror((int)-fd));
  }
  space->fd = raise_fd(space, (int)fd);
  void *mapping = NULL;
  space->size = regions_end() + (space->block_bytes != 0 ? CT_SEGMENTS * (window_bytes(space) + SLACK) : 0);
  code = ct_process_map_memfd(space->process, space->fd, space->size, &mapping, NULL, diag);
  if (code == 0) {
    space->bytes = mapping;
    space->slots = mapping;
  }
  return code;
}

static int
add_regions(struct ct_itrace_space *space, const struct ct_mappings *mappings, struct ct_diag *diag)
{
  int code = 0;
  for (size_t i = 0; i < mappings->count && code == 0; i++) {
    const struct ct_mapping *mapping = &mappings->items[i];
    if (mapping->executable && mapping->end < USER_END && space->region_count < CT_CACHE_REGIONS - 2 &&
        !is_ours(mapping) && !ct_code_cache_has_region_near(space->cache, mapping->start)) {
      code = add_region(space, mappings, mapping->start, diag);
    }
  }
  return code;
}

/* What is shared with the program is mapped there, and the code that it will run has its places. */
static int
fill_space(struct ct_itrace_space *space, struct ct_translation_place *place, struct ct_unit_log *log,
           struct ct_mappings *mappings, struct ct_diag *diag)
{
  int code = map_shared(space, mappings, diag);
  if (code != 0) {
    return code;
  }
  space->slots->timeout[1] = CT_ITRACE_WAIT_NS;
  choose_syscalls(space);
  place->shared = space->shared;
  space->cache = ct_code_cache_create(space->slots, place, log);
  if (space->cache == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  code = add_regions(space, mappings, diag);
  return code == 0 && place->records ? add_segments(space, mappings, diag) : code;
}

int
ct_space_create(struct ct_process *process, struct ct_unit_log *log, bool has_vectors, uint32_t crowd,
                struct ct_itrace_space *space, struct ct_diag *diag)
{
  struct ct_mappings mappings;
  uint32_t silent_waits = (uint32_t)ct_test_number("CONTRAIL_TEST_SILENT_WAITS", CT_ITRACE_SILENT_WAITS);
  struct ct_translation_place place = {
      .records = log != NULL, .has_vectors = has_vectors, .silent_waits = silent_waits != 0 ? silent_waits : 1};
  place.has_bmi2 = __builtin_cpu_supports("bmi2");
  *space = (struct ct_itrace_space){.process = process, .fd = -1, .crowd = crowd};
  if (place.records) {
    space->block_bytes = 1ull << (place.has_bmi2 ? CT_ITRACE_BLOCK_SHIFT : CT_ITRACE_BLOCK_SHIFT_OLD);
  }
  int code = make_memory(space, diag);
  if (code != 0) {
    close_memory(space);
    return code;
  }
  ct_test_point("space-begun");
  code = ct_process_mappings(process->pid, &mappings);
  if (code == 0) {
    code = fill_space(space, &place, log, &mappings, diag);
  }
  ct_mappings_free(&mappings);
  close_memory(space);
  if (code != 0) { /* the thread goes on without it */
    ct_space_remove(space);
  }
  return code;
}

void
ct_space_remove(struct ct_itrace_space *space)
{
  int64_t ignored;
  for (uint32_t i = 0; i < space->region_count; i++) {
    call(space, SYS_munmap, space->regions[i], space->region_sizes[i], 0, 0, 0, 0, &ignored);
  }
  for (uint32_t i = 0; i < CT_SEGMENTS && space->segments[i].address != 0; i++) {
    uint64_t start = space->segments[i].address - space->block_bytes;
    call(space, SYS_munmap, start, window_bytes(space) + SLACK, 0, 0, 0, 0, &ignored);
    space->segments[i].address = 0;
  }
  if (space->shared != 0) {
    call(space, SYS_munmap, space->shared, SHARED_BYTES, 0, 0, 0, 0, &ignored);
  }
  space->region_count = 0;
  space->shared = 0;
}

void
ct_space_free(struct ct_itrace_space *space)
{
  ct_code_cache_free(space->cache);
  if (space->bytes != NULL) {
    munmap(space->bytes, space->size);
  }
  *space = (struct ct_itrace_space){.fd = -1};
}
