/* SPDX-License-Identifier: MIT */
/*
 * Installation of a module; see install.h.
 *
 *   region (64 KiB aligned, so that each byte of the table stands for trampolines only):
 *   | struct ct_region_head | trampolines ... | descriptors ... |
 *
 * Nothing executes a trampoline before its entry jump is written, and that is done last. Every page that is written is
 * a private copy in the target.
 */
#include "hook/install.h"

#include "target/functions.h"
#include "x86/trampoline.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define UNIT          (1ull << CT_TABLE_SHIFT)
#define REACH_MAX     (0x7fffffffull - (64ull << 20)) /* of rel32, less a margin */
#define CELL_MAX      416                             /* usual trampoline; the estimate for address space */
#define LOW_ADDRESSES (1ull << 32)                    /* where programs at fixed addresses lie */
#define BRK_ROOM      (768ull << 20)                  /* left to the heap above such a program */

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static uint64_t
now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t
round_up(uint64_t value, uint64_t unit)
{
  return (value + unit - 1) & ~(unit - 1);
}

/* Where the module lies in memory: its lowest and highest byte. */
static void
module_extent(const struct ct_plan *plan, uint64_t base, uint64_t *lo, uint64_t *hi)
{
  *lo = UINT64_MAX;
  *hi = 0;
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(plan->elf, &segments);
  for (size_t i = 0; i < count; i++) {
    uint64_t start = base + segments[i].address;
    if (start < *lo) {
      *lo = start;
    }
    if (start + segments[i].memory_bytes > *hi) {
      *hi = start + segments[i].memory_bytes;
    }
  }
}

/* An unused range of size bytes within reach of [lo, hi), 64 KiB aligned; 0 when there is none. */
static uint64_t
find_gap(const struct ct_mappings *mappings, uint64_t lo, uint64_t hi, uint64_t size)
{
  /* Downwards from the module. */
  for (size_t i = mappings->count + 1; i-- > 0;) {
    uint64_t top = i < mappings->count ? mappings->items[i].start : 0x7ffffffff000ull;
    uint64_t bottom = i > 0 ? mappings->items[i - 1].end : UNIT;
    if (top > lo) {
      continue;
    }
    uint64_t at = (top - UNIT) & ~(UNIT - 1);
    if (top < size + 2 * UNIT || at < size) {
      break;
    }
    at -= round_up(size, UNIT);
    if (hi - at > REACH_MAX) {
      break;
    }
    if (at >= bottom + UNIT) {
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
    uint64_t room = hi < LOW_ADDRESSES ? BRK_ROOM : 0;
    uint64_t at = round_up(bottom + room, UNIT);
    if (at + size - lo > REACH_MAX) {
      break;
    }
    if (at + size + UNIT <= top) {
      return at;
    }
  }
  return 0;
}

/* Maps size bytes near [lo, hi). Other threads map too: where somebody was faster another place is looked for. */
static int
map_region(const struct ct_remote *remote, uint64_t lo, uint64_t hi, uint64_t size, uint64_t *region,
           struct ct_diag *diag)
{
  int64_t result = 0;
  for (int attempt = 0; attempt < 16; attempt++) {
    struct ct_mappings mappings;
    int code = ct_process_mappings(remote->process->pid, &mappings);
    if (code != 0) {
      return ct_fail(diag, code, "cannot read the mappings of process %d", (int)remote->process->pid);
    }
    uint64_t at = find_gap(&mappings, lo, hi, size);
    ct_mappings_free(&mappings);
    if (at == 0) {
      return ct_fail(diag, CT_ERANGE, "no room for trampolines within 2 GiB of the module");
    }
    uint64_t args[6] = {
        at,           size, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE,
        (uint64_t)-1, 0};
    code = remote->syscall(remote->context, SYS_mmap, args, &result);
    if (code != 0) {
      return ct_fail(diag, code, "cannot map memory for trampolines: %s", ct_err_text(code));
    }
    if (result == (int64_t)at) {
      *region = at;
      return 0;
    }
    if (result != -EEXIST) {
      break;
    }
  }
  return ct_fail(diag, CT_ENOMEM, "cannot map %llu bytes for trampolines: %s", (unsigned long long)size,
                 strerror((int)-result));
}

struct text {
  uint64_t start; /* in the target */
  uint64_t size;
  uint8_t *bytes; /* as in memory */
};

struct build {
  struct text *texts; /* the executable segments */
  size_t text_count;
  uint8_t *bytes;
  struct ct_hook_desc *descs;
  size_t hooked;
  struct ct_code code;
};

static int
read_texts(const struct ct_remote *remote, const struct ct_plan *plan, uint64_t base, struct build *build)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(plan->elf, &segments);
  build->texts = calloc(count + 1, sizeof(*build->texts));
  if (build->texts == NULL) {
    return CT_ENOMEM;
  }
  for (size_t s = 0; s < count; s++) {
    if ((segments[s].flags & PF_X) == 0 || segments[s].file_bytes == 0) {
      continue;
    }
    struct text *text = &build->texts[build->text_count];
    text->start = base + segments[s].address;
    text->size = segments[s].file_bytes;
    text->bytes = malloc(text->size);
    if (text->bytes == NULL) {
      return CT_ENOMEM;
    }
    build->text_count++;
    if (ct_process_read(remote->process, text->start, text->bytes, text->size) != 0) {
      return CT_EIO;
    }
  }
  return 0;
}

/* The bytes at address as they are in memory, or NULL. */
static const uint8_t *
text_at(const struct build *build, uint64_t address, size_t size)
{
  for (size_t i = 0; i < build->text_count; i++) {
    const struct text *text = &build->texts[i];
    if (address >= text->start && address + size <= text->start + text->size) {
      return text->bytes + (address - text->start);
    }
  }
  return NULL;
}

/* Writes the entry jumps into the copies of the text, and each run of changed bytes back. */
static int
write_jumps(const struct ct_remote *remote, const struct build *build)
{
  for (size_t s = 0; s < build->text_count; s++) {
    const struct text *text = &build->texts[s];
    uint64_t dirty_lo = UINT64_MAX, dirty_hi = 0;
    for (size_t next = 0; next < build->hooked; next++) {
      const struct ct_hook_desc *desc = &build->descs[next];
      if (desc->function < text->start || desc->function + CT_JUMP_BYTES > text->start + text->size) {
        continue;
      }
      uint64_t at = desc->function - text->start;
      if (dirty_hi != 0 && at > dirty_hi + 2 * CT_PAGE_BYTES) {
        int code =
            ct_process_write(remote->process, text->start + dirty_lo, text->bytes + dirty_lo, dirty_hi - dirty_lo);
        if (code != 0) {
          return code;
        }
        dirty_lo = UINT64_MAX;
      }
      ct_jump_bytes(desc->function, desc->enter, text->bytes + at);
      dirty_lo = at < dirty_lo ? at : dirty_lo;
      dirty_hi = at + CT_JUMP_BYTES;
    }
    if (dirty_lo < dirty_hi) {
      int code = ct_process_write(remote->process, text->start + dirty_lo, text->bytes + dirty_lo, dirty_hi - dirty_lo);
      if (code != 0) {
        return code;
      }
    }
  }
  return 0;
}

static int
emit_all(struct ct_plan *plan, const struct ct_agent_place *place, uint64_t base, uint32_t first_fn, uint64_t region,
         uint64_t descs_at, struct build *build, struct ct_installed *out)
{
  for (size_t i = 0; i < plan->count; i++) {
    struct ct_planned *planned = &plan->functions[i];
    if (planned->refusal != CT_REFUSED_NOT) {
      continue;
    }
    uint64_t patched = planned->address + planned->patch_offset;
    const uint8_t *bytes = ct_elf_bytes(plan->elf, patched, planned->window.length);
    struct ct_trampoline_spec spec = {
        .fn = first_fn + (uint32_t)build->hooked,
        .mode = planned->mode,
        .callout = planned->callout,
        .self_branch = planned->self_branch,
        .store_delta = place->store_delta,
        .function = base + patched,
        .head = region,
        .desc = descs_at + build->hooked * sizeof(struct ct_hook_desc),
        .code = bytes,
        .window = &planned->window,
    };
    while (build->code.length % 16 != 0) {
      ct_emit_u8(&build->code, 0xcc);
    }
    const uint8_t *in_memory = text_at(build, base + patched, planned->window.length);
    enum ct_refusal refusal = CT_REFUSED_CHANGED;
    if (bytes != NULL && in_memory != NULL && memcmp(bytes, in_memory, planned->window.length) == 0) {
      enum ct_window_refusal emitted = ct_trampoline_emit(&spec, &build->code, &build->descs[build->hooked]);
      refusal = emitted == CT_WINDOW_OK ? CT_REFUSED_NOT : CT_REFUSED_UNREACHABLE;
    }
    if (refusal != CT_REFUSED_NOT) {
      planned->refusal = refusal;
      plan->refused[refusal]++;
      plan->hooked--;
      out->refused_late++;
      continue;
    }
    build->hooked++;
  }
  return 0;
}

static int
mark_table(const struct ct_remote *remote, const struct ct_agent_place *place, uint64_t lo, uint64_t hi, uint8_t kind)
{
  uint8_t marks[4096];
  memset(marks, kind, sizeof(marks));
  uint64_t first = lo >> CT_TABLE_SHIFT;
  uint64_t last = (hi - 1) >> CT_TABLE_SHIFT;
  while (first <= last) {
    uint64_t count = last - first + 1 < sizeof(marks) ? last - first + 1 : sizeof(marks);
    int code = ct_process_write(remote->process, place->table + first, marks, count);
    if (code != 0) {
      return code;
    }
    first += count;
  }
  return 0;
}

static int
tell_agent(const struct ct_remote *remote, struct ct_agent_place *place, uint64_t lo, uint64_t hi, uint64_t descs,
           uint64_t count)
{
  if (place->region_count >= CT_REGION_MAX) {
    return CT_ERANGE;
  }
  struct ct_region region = {lo, hi, descs, count};
  uint64_t at = place->config + offsetof(struct ct_agent_config, regions) + place->region_count * sizeof(region);
  int code = ct_process_write(remote->process, at, &region, sizeof(region));
  if (code != 0) {
    return code;
  }
  uint64_t regions = ++place->region_count;
  return ct_process_write(remote->process, place->config + offsetof(struct ct_agent_config, region_count), &regions,
                          sizeof(regions));
}

int
ct_install_mark_text(const struct ct_remote *remote, const struct ct_agent_place *place, const struct ct_plan *plan,
                     uint64_t base, uint8_t kind)
{
  const struct ct_elf_segment *segments;
  size_t count = ct_elf_segments(plan->elf, &segments);
  for (size_t s = 0; s < count; s++) {
    if ((segments[s].flags & PF_X) != 0 && segments[s].memory_bytes != 0) {
      uint64_t lo = base + segments[s].address;
      int code = mark_table(remote, place, lo, lo + segments[s].memory_bytes, kind);
      if (code != 0) {
        return code;
      }
    }
  }
  for (size_t i = 0; i < plan->foreign_count; i++) {
    int code = mark_table(remote, place, base + plan->foreign[i].start, base + plan->foreign[i].end, CT_TEXT_OTHER);
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

static int
put_region(const struct ct_remote *remote, struct ct_agent_place *place, struct ct_plan *plan, uint64_t base,
           uint64_t region, uint64_t size, struct build *build, struct ct_installed *out)
{
  uint64_t descs_at = region + size - round_up(plan->hooked * sizeof(struct ct_hook_desc), 64);
  build->code = (struct ct_code){.bytes = build->bytes, .capacity = descs_at - region, .address = region};
  ct_emit_bytes(&build->code, &place->head, sizeof(place->head));
  int code = emit_all(plan, place, base, out->first_fn, region, descs_at, build, out);
  if (code == 0) {
    code = ct_process_write(remote->process, region, build->bytes, build->code.length);
  }
  if (code == 0) {
    code = ct_process_write(remote->process, descs_at, build->descs, build->hooked * sizeof(*build->descs));
  }
  if (code == 0) {
    code = mark_table(remote, place, region, region + size, CT_TEXT_TRAMPOLINE);
  }
  if (code == 0) {
    code = tell_agent(remote, place, region, descs_at, descs_at, build->hooked);
  }
  return code;
}

int
ct_install_module(const struct ct_remote *remote, struct ct_agent_place *place, struct ct_plan *plan, uint64_t base,
                  uint32_t first_fn, struct ct_installed *out, struct ct_diag *diag)
{
  uint64_t begin = now_ns();
  uint64_t lo, hi, region = 0;
  memset(out, 0, sizeof(*out));
  out->first_fn = first_fn;
  module_extent(plan, base, &lo, &hi);
  int code = ct_install_mark_text(remote, place, plan, base, CT_TEXT_MODULE);
  if (code != 0) {
    return ct_fail(diag, code, "cannot write the text table");
  }
  if (plan->hooked == 0) {
    return 0;
  }
  uint64_t size = round_up(
      sizeof(struct ct_region_head) + plan->hooked * (CELL_MAX + sizeof(struct ct_hook_desc)) + CT_PAGE_BYTES, UNIT);
  code = map_region(remote, lo, hi, size, &region, diag);
  if (code != 0) {
    return code;
  }
  struct build build = {.bytes = malloc(size), .descs = calloc(plan->hooked, sizeof(struct ct_hook_desc))};
  code = CT_ENOMEM;
  if (build.bytes != NULL && build.descs != NULL) {
    code = read_texts(remote, plan, base, &build);
  }
  if (code == 0) {
    code = put_region(remote, place, plan, base, region, size, &build, out);
  }
  if (code == 0) {
    code = write_jumps(remote, &build);
  }
  out->hooked = (uint32_t)build.hooked;
  out->region = region;
  out->region_bytes = size;
  out->install_ns = now_ns() - begin;
  for (size_t i = 0; i < build.text_count; i++) {
    free(build.texts[i].bytes);
  }
  free(build.texts);
  free(build.bytes);
  free(build.descs);
  return code == 0 ? 0 : ct_fail(diag, code, "cannot write trampolines: %s", ct_err_text(code));
}
