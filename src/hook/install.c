/* SPDX-License-Identifier: MIT */
/*
 * Installation of a module; see install.h.
 *
 *   region (64 KiB aligned, so that each byte of the table stands for trampolines only):
 *   | struct ct_region_head | trampolines, instructions that moved out ... | descriptors | frames | patches |
 *
 * Nothing executes a trampoline before its entry is patched, and that is done last. Every page that is written is a
 * private copy in the target. The agent's list of regions has an entry for the region and, without descriptors, one for
 * each other place where a thread can stand on the way to a trampoline (islands: jumps in padding or in place of
 * instructions, pages of stubs), so that an unwinder can be given what lies there.
 */
#include "hook/install_internal.h"

#include "base/clock.h"
#include "hook/delivery.h"
#include "hook/near_alloc.h"
#include "ring/counters.h"
#include "target/functions.h"
#include "x86/trampoline.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define CELL_MAX     416                    /* usual trampoline; the estimate for address space */
#define DETAIL_MAX   1280                   /* more with detail: then it is the longest that there is */
#define ISLANDS_MAX  (CT_REGION_MAX - 1024) /* pages of stubs, and traps; the rest is for regions */
#define RELAYS_MAX   (CT_REGION_MAX - 2048) /* ... of these, jumps in padding */
#define FOR_EVER     UINT32_MAX             /* an owner that is never removed */
#define GATE_MAX     208                    /* more with a gate, and with what is left out before it */
#define EVICTED_MAX  128                    /* bytes of a copy */
#define CHUNK_BYTES  (512u << 10) /* of trampolines, and of descriptors, written at once: they stay in the cache */
#define CHUNK_ROOM   4096         /* more than one function takes */
#define CHUNK_DESCS  (CHUNK_BYTES / sizeof(struct ct_hook_desc))
#define LATE_STEP    1024       /* functions between two looks at the clock */
#define DELIVERY_MIN 1000       /* from so many functions on a second thread is worth it */
#define HUGE_BYTES   (4u << 20) /* a region from that size on gets large pages */

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

struct build {
  const struct ct_remote *remote;
  struct ct_agent_layout *layout;
  const struct ct_plan *plan;
  const struct ct_filter_result *filter_result;
  struct ct_installed *installed;
  struct ct_texts texts;
  struct ct_delivery *delivery; /* writes what is emitted; NULL: we do */
  void *bytes;                  /* what is not written yet ... */
  struct ct_code code;          /* ... as it will lie in the region */
  uint64_t descs_at;            /* of all descriptors, in the target */
  void *descs;                  /* those from desc_written on */
  size_t desc_count, desc_written;
  size_t patch_capacity;
  const struct ct_installed *const *others; /* hooks that the module has already */
  size_t other_count;
  bool is_layer; /* nothing is patched yet */
};

/* Trampolines are emitted into a buffer, which begins anew at where the code has come to. */
static void
begin_chunk(struct build *build, uint64_t address)
{
  uint64_t left = build->descs_at - address;
  build->code =
      (struct ct_code){.bytes = build->bytes, .capacity = left < CHUNK_BYTES ? left : CHUNK_BYTES, .address = address};
}

static int
write_buffer(struct build *build, uint64_t address, void **buffer, size_t bytes)
{
  if (build->delivery == NULL) {
    return ct_process_write(build->remote->process, address, *buffer, bytes);
  }
  ct_delivery_put(build->delivery, address, buffer, bytes);
  return 0;
}

static int
write_code(struct build *build)
{
  const struct ct_code *code = &build->code;
  int failed = write_buffer(build, code->address, &build->bytes, code->length);
  begin_chunk(build, ct_code_pc(code));
  return failed;
}

static int
write_descs(struct build *build)
{
  uint64_t at = build->descs_at + build->desc_written * sizeof(struct ct_hook_desc);
  size_t bytes = (build->desc_count - build->desc_written) * sizeof(struct ct_hook_desc);
  build->desc_written = build->desc_count;
  return write_buffer(build, at, &build->descs, bytes);
}

/* Between two functions: makes room in the buffers. */
static int
write_when_full(struct build *build)
{
  int code = 0;
  if (build->code.capacity == CHUNK_BYTES && build->code.length > CHUNK_BYTES - CHUNK_ROOM) {
    code = write_code(build);
  }
  if (code == 0 && build->desc_count - build->desc_written > CHUNK_DESCS - 4) {
    code = write_descs(build);
  }
  return code;
}

/* The next descriptor. */
static struct ct_hook_desc *
new_desc(struct build *build)
{
  return (struct ct_hook_desc *)build->descs + (build->desc_count - build->desc_written);
}

/* Trampolines' addresses on stacks do no harm as long as the hook of a guard is there. */
static uint8_t
kind_of(const struct ct_planned *planned, bool relay)
{
  uint8_t kind = relay ? CT_PATCH_RELAY : 0;
  switch (planned->callout) {
  case CT_CALLOUT_FIND_FDE:
  case CT_CALLOUT_MODULES:
  case CT_CALLOUT_FIND_OBJECT:
    return kind | CT_PATCH_GUARD;
  case CT_CALLOUT_COPY:
  case CT_CALLOUT_MOVE:
  case CT_CALLOUT_REMAP:
    return kind | CT_PATCH_GUARD | CT_PATCH_COPY;
  default:
    return kind;
  }
}

static int
add_patch(struct build *build, const struct ct_planned *planned, bool relay, uint64_t address, const uint8_t *bytes,
          size_t length)
{
  const uint8_t *old = ct_texts_at(&build->texts, address, length);
  if (old == NULL) {
    return CT_ERANGE;
  }
  struct ct_installed *installed = build->installed;
  if (installed->patch_count == build->patch_capacity) {
    size_t grown = build->patch_capacity * 2 + 64;
    struct ct_patch *patches = realloc(installed->patches, grown * sizeof(*patches));
    if (patches == NULL) {
      return CT_ENOMEM;
    }
    installed->patches = patches;
    build->patch_capacity = grown;
  }
  struct ct_patch *patch = &installed->patches[installed->patch_count++];
  *patch = (struct ct_patch){.address = address,
                             .function = (uint32_t)(planned - build->plan->functions),
                             .length = (uint8_t)length,
                             .kind = kind_of(planned, relay)};
  memcpy(patch->bytes, bytes, length);
  memcpy(patch->old, old, length);
  return 0;
}

static int
add_jump(struct build *build, const struct ct_planned *planned, bool relay, uint64_t from, uint64_t to)
{
  uint8_t bytes[CT_JUMP_BYTES];
  return ct_jump_bytes(from, to, bytes) != 0 ? CT_ERANGE : add_patch(build, planned, relay, from, bytes, sizeof(bytes));
}

/* An entry of the agent's list that is free; limit: there is none below that. */
static size_t
free_entry(const struct ct_agent_layout *layout, size_t limit)
{
  size_t index = 0;
  while (index < limit && layout->region_used[index] != 0) {
    index++;
  }
  return index;
}

/* Writes an entry of the agent's list: first what it says, then the range, empty until its end is there. */
static int
publish_to_agent(struct build *build, uint32_t owner, uint64_t lo, uint64_t hi, uint64_t descs, uint64_t count,
                 size_t limit)
{
  struct ct_agent_layout *layout = build->layout;
  size_t index = free_entry(layout, limit);
  if (index == limit) {
    return CT_ENOSPC;
  }
  struct ct_region region = {lo, 0, descs, count};
  uint64_t at = layout->config + offsetof(struct ct_agent_config, regions) + index * sizeof(region);
  int code = ct_process_write(build->remote->process, at, &region, sizeof(region));
  if (code != 0) {
    return code;
  }
  code = ct_process_write(build->remote->process, at + offsetof(struct ct_region, hi), &hi, sizeof(hi));
  if (code != 0) {
    return code;
  }
  if (index >= layout->region_count) {
    uint64_t regions = index + 1;
    layout->region_count = (uint32_t)regions;
    code = ct_process_write(build->remote->process, layout->config + offsetof(struct ct_agent_config, region_count),
                            &regions, sizeof(regions));
  }
  layout->region_used[index] = code == 0 ? owner : 0;
  return code;
}

/* The instructions that make room for a jump, and the jump to their copy. */
static enum ct_refusal
evict(struct build *build, const struct ct_planned *planned, const struct ct_springboard *springboard)
{
  uint64_t base = build->installed->base;
  const uint8_t *bytes = ct_texts_unchanged(&build->texts, base + springboard->evicted, springboard->window.length);
  if (bytes == NULL) {
    return CT_REFUSED_CHANGED;
  }
  if (ct_install_is_occupied(build->remote, base + springboard->evicted, 2 * CT_JUMP_BYTES)) {
    return CT_REFUSED_BUSY;
  }
  struct ct_hook_desc *desc = new_desc(build);
  struct ct_relocation_map map;
  uint64_t copy = ct_code_pc(&build->code);
  if (ct_window_relocate(bytes, base + springboard->evicted, &springboard->window, &build->code, &map) !=
      CT_WINDOW_OK) {
    return CT_REFUSED_UNREACHABLE;
  }
  *desc = (struct ct_hook_desc){.start = copy,
                                .enter = copy,
                                .relocated = copy,
                                .after_callout = copy,
                                .relocated_end = ct_code_pc(&build->code),
                                .function = base + springboard->evicted,
                                .map_count = map.count};
  memcpy(desc->map_new, map.to, sizeof(desc->map_new));
  memcpy(desc->map_old, map.from, sizeof(desc->map_old));
  if (add_jump(build, planned, true, base + springboard->evicted, copy) != 0) {
    return CT_REFUSED_UNREACHABLE;
  }
  build->installed->patches[build->installed->patch_count - 1].kind |= CT_PATCH_EVICTED;
  build->desc_count++;
  return CT_REFUSED_NOT;
}

/* A two-byte jump at patched, and a five-byte one where it goes. */
static enum ct_refusal
patch_short(struct build *build, const struct ct_planned *planned, uint64_t patched, uint64_t trampoline)
{
  const struct ct_springboard *springboard = &build->plan->springboard[planned->springboard];
  uint64_t base = build->installed->base;
  uint8_t bytes[CT_SHORT_JUMP_BYTES];
  if (ct_short_jump_bytes(patched, base + springboard->relay, bytes) != 0) {
    return CT_REFUSED_UNREACHABLE;
  }
  if (ct_texts_unchanged(&build->texts, base + springboard->relay, CT_JUMP_BYTES) == NULL) {
    return CT_REFUSED_CHANGED;
  }
  if (planned->tactic == CT_TACTIC_EVICT) {
    enum ct_refusal refusal = evict(build, planned, springboard);
    if (refusal != CT_REFUSED_NOT) {
      return refusal;
    }
  }
  if (add_jump(build, planned, true, base + springboard->relay, trampoline) != 0 ||
      add_patch(build, planned, false, patched, bytes, sizeof(bytes)) != 0) {
    return CT_REFUSED_UNREACHABLE;
  }
  /* Without an entry an unwinder that comes by in just this instruction goes no further: worth less than the hook. Who
   * takes the hooks out knows it by its patch. */
  uint64_t relay = base + springboard->relay;
  (void)publish_to_agent(build, build->installed->owner, relay, relay + CT_JUMP_BYTES, 0, 0, RELAYS_MAX);
  return CT_REFUSED_NOT;
}

/* A jump whose upper bytes are given: a stub goes where it points. */
static enum ct_refusal
patch_pun(struct build *build, const struct ct_planned *planned, uint64_t patched, uint64_t trampoline)
{
  const uint8_t *in_memory = ct_texts_at(&build->texts, patched, CT_JUMP_BYTES);
  if (in_memory == NULL) {
    return CT_REFUSED_NO_CODE;
  }
  uint64_t span = 1ull << (8 * (planned->patch_bytes - 1));
  int32_t rel;
  memcpy(&rel, in_memory + 1, sizeof(rel));
  uint64_t lo = patched + CT_JUMP_BYTES + ((uint64_t)(int64_t)rel & ~(span - 1));
  uint64_t hi = lo + span, module_lo, module_hi;
  module_extent(build->plan, build->installed->base, &module_lo, &module_hi);
  if (ct_elf_type(build->plan->elf) == ET_EXEC && hi > module_hi && lo < module_hi + CT_HEAP_RESERVE) {
    lo = module_hi + CT_HEAP_RESERVE;
  }
  uint64_t stub, new_pages;
  bool may_map = free_entry(build->layout, ISLANDS_MAX) != ISLANDS_MAX; /* pages that are not listed are never found */
  int code =
      ct_near_alloc_stub(build->remote, build->layout, build->installed->owner, lo, hi, may_map, &stub, &new_pages);
  if (code == 0 && new_pages != 0) {
    code = publish_to_agent(build, FOR_EVER, new_pages, new_pages + CT_STUB_PAGES_BYTES, 0, 0, ISLANDS_MAX);
  }
  if (code != 0) {
    return code == CT_ENOSPC ? CT_REFUSED_CROWDED : CT_REFUSED_UNREACHABLE;
  }
  uint8_t stub_bytes[CT_STUB_BYTES], bytes[CT_JUMP_BYTES];
  ct_stub_bytes(trampoline, stub_bytes);
  if (ct_process_write(build->remote->process, stub, stub_bytes, sizeof(stub_bytes)) != 0 ||
      ct_jump_bytes(patched, stub, bytes) != 0 ||
      add_patch(build, planned, false, patched, bytes, planned->patch_bytes) != 0) {
    return CT_REFUSED_UNREACHABLE;
  }
  return CT_REFUSED_NOT;
}

/* The agent's handler finds the trampoline by the address of the trap. */
static enum ct_refusal
patch_int3(struct build *build, const struct ct_planned *planned, uint64_t patched, uint64_t trampoline)
{
  int code = publish_to_agent(build, build->installed->owner, patched, patched + 1, trampoline, 0, ISLANDS_MAX);
  code = code == 0 ? add_patch(build, planned, false, patched, &ct_int3_byte, 1) : code;
  return code == 0 ? CT_REFUSED_NOT : code == CT_ENOSPC ? CT_REFUSED_CROWDED : CT_REFUSED_UNREACHABLE;
}

static enum ct_refusal
add_patches(struct build *build, const struct ct_planned *planned, uint64_t patched, uint64_t trampoline)
{
  switch (planned->tactic) {
  case CT_TACTIC_SHORT:
  case CT_TACTIC_EVICT:
    return patch_short(build, planned, patched, trampoline);
  case CT_TACTIC_PUN:
    return patch_pun(build, planned, patched, trampoline);
  case CT_TACTIC_INT3:
    return patch_int3(build, planned, patched, trampoline);
  default:
    return add_jump(build, planned, false, patched, trampoline) == 0 ? CT_REFUSED_NOT : CT_REFUSED_UNREACHABLE;
  }
}

/* As struct ct_filter_result has it. */
static struct ct_values_form
values_form(uint64_t packed)
{
  struct ct_values_form form;
  memcpy(&form, &packed, sizeof(form));
  return form;
}

/* One function: its trampoline, and the patches that lead there. What was begun is taken back on a refusal. */
static enum ct_refusal
emit_one(struct build *build, const struct ct_planned *planned, enum ct_requested_mode requested, uint64_t more,
         uint32_t fn)
{
  uint8_t probe = ct_planned_probe(build->plan, build->filter_result, (size_t)(planned - build->plan->functions));
  uint64_t base = build->installed->base;
  uint64_t patched = planned->address + planned->patch_offset;
  while (ct_code_pc(&build->code) % (build->layout->has_gates ? CT_GATE_ALIGN : 16) != 0 && !build->code.overflow) {
    ct_emit_int3(&build->code);
  }
  const uint8_t *bytes = ct_texts_unchanged(&build->texts, base + patched, planned->window.length);
  if (bytes == NULL) {
    return CT_REFUSED_CHANGED;
  }
  if (ct_install_is_occupied(build->remote, base + patched, planned->patch_bytes)) {
    return CT_REFUSED_BUSY;
  }
  uint32_t number = fn - build->layout->first_counted;
  bool is_counted = number < ct_counters_by_id(build->layout->counter_blocks) && !planned->self_branch;
  const uint8_t *ruled = build->filter_result != NULL ? build->filter_result->ruled : NULL;
  bool is_ruled = ruled != NULL && ruled[planned - build->plan->functions] != 0;
  struct ct_trampoline_spec spec = {
      .has_gate = build->layout->has_gates,
      .gate = {.mask = CT_LEVEL_MASK_FIRST,
               .level = is_counted && !is_ruled ? CT_LEVEL_COUNTING : CT_LEVEL_FULL,
               .pad = {ct_int3_byte, ct_int3_byte, ct_int3_byte}},
      .counter = is_counted ? ct_counter_by_id(number) : CT_COUNTERS_BY_NEED - 1, /* nobody's */
      .moves_counter = !is_counted && !planned->self_branch,
      .fn = fn,
      .mode = ct_planned_mode(planned, requested),
      .callout = probe != 0 ? CT_CALLOUT_ITRACE : planned->callout,
      .itrace = probe,
      .self_branch = planned->self_branch,
      .values = ct_planned_values(planned, requested),
      .detail = build->layout->detail,
      .texts = (uint16_t)(requested == CT_REQUESTED_DETAIL ? more : 0),
      .outs = (uint16_t)(requested == CT_REQUESTED_DETAIL ? more >> 16 : 0),
      .errno_slot = build->plan->errno_slot != 0 ? base + build->plan->errno_slot : 0,
      .event_last = planned->event_last,
      .store_delta = build->layout->store_delta,
      .table = build->layout->table,
      .function = base + patched,
      .head = build->installed->region,
      .desc = build->descs_at + build->desc_count * sizeof(struct ct_hook_desc),
      .code = bytes,
      .window = &planned->window,
  };
  spec.form = values_form(requested == CT_REQUESTED_VALUES ? more : 0);
  struct ct_code code = build->code;
  size_t descs = build->desc_count, patches = build->installed->patch_count;
  struct ct_hook_desc *desc = new_desc(build);
  if (ct_trampoline_emit(&spec, &build->code, desc) != CT_WINDOW_OK) {
    return CT_REFUSED_UNREACHABLE;
  }
  build->desc_count++;
  enum ct_refusal refusal = add_patches(build, planned, base + patched, desc->start);
  if (refusal != CT_REFUSED_NOT) {
    build->code = code;
    build->desc_count = descs;
    build->installed->patch_count = patches;
  } else if (build->installed->gates != NULL && spec.mode == CT_HOOK_FULL) {
    build->installed->gates[planned - build->plan->functions] = desc->start - sizeof(struct ct_gate);
  }
  return refusal;
}

static int
note_install_refusal(struct build *build, size_t i, enum ct_refusal refusal)
{
  struct ct_installed *installed = build->installed;
  if (installed->install_refusals == NULL) {
    installed->install_refusals = calloc(build->plan->count, 1);
    if (installed->install_refusals == NULL) {
      return CT_ENOMEM;
    }
  }
  installed->install_refusals[i] = (uint8_t)refusal;
  installed->install_refused += !ct_refusal_by_user(refusal);
  return 0;
}

static int
emit_all(struct build *build)
{
  const struct ct_plan *plan = build->plan;
  struct ct_installed *installed = build->installed;
  uint32_t fn = installed->first_fn;
  int code = 0;
  for (size_t i = 0; i < plan->count && code == 0; i++) {
    if (i % LATE_STEP == 0 && build->remote->deadline_ns != 0 && ct_now_ns() > build->remote->deadline_ns) {
      return CT_ETIMEOUT;
    }
    if (plan->functions[i].refusal != CT_REFUSED_NOT) {
      continue;
    }
    enum ct_requested_mode requested = ct_filter_result_mode(build->filter_result, i);
    enum ct_refusal refusal = ct_filter_result_reason(build->filter_result, i);
    if (requested != CT_REQUESTED_NONE) {
      uint64_t more =
          build->filter_result != NULL && build->filter_result->more != NULL ? build->filter_result->more[i] : 0;
      code = write_when_full(build);
      if (code != 0) {
        return code;
      }
      refusal = emit_one(build, &plan->functions[i], requested, more, fn);
    }
    fn++;
    if (ct_requested_has_event(requested) && refusal == CT_REFUSED_NOT) {
      installed->hooked++;
    } else {
      code = note_install_refusal(
          build, i, refusal != CT_REFUSED_NOT ? refusal : ct_filter_result_reason(build->filter_result, i));
    }
  }
  ct_patches_sort(installed->patches, installed->patch_count);
  return code;
}

/* So that the patches can be taken back by whoever finds the region. */
static int
write_patches(struct build *build)
{
  const struct ct_installed *installed = build->installed;
  uint64_t at = ct_region_frames_at(build->descs_at, build->desc_count, CT_REGION_FRAMES_COUNT);
  at = round_up(at, sizeof(uint64_t));
  uint64_t head[3] = {installed->region_bytes, at, installed->patch_count};
  int code = ct_process_write(build->remote->process, at, installed->patches,
                              installed->patch_count * sizeof(*installed->patches));
  return code != 0
             ? code
             : ct_process_write(build->remote->process,
                                installed->region + offsetof(struct ct_region_head, region_bytes), head, sizeof(head));
}

static int
write_parts(struct build *build)
{
  struct ct_installed *installed = build->installed;
  int code = emit_all(build);
  if (code == 0) {
    code = write_code(build);
  }
  installed->trampoline_bytes =
      build->code.address - installed->region + build->desc_count * sizeof(struct ct_hook_desc);
  return code == 0 ? write_descs(build) : code;
}

/* The trampolines and their descriptions, delivered. */
static int
write_region(struct build *build)
{
  begin_chunk(build, build->installed->region);
  ct_emit_bytes(&build->code, &build->layout->head, sizeof(build->layout->head));
  int code = write_parts(build);
  if (build->delivery != NULL) {
    int end_code = ct_delivery_end(build->delivery);
    build->delivery = NULL;
    code = code != 0 ? code : end_code;
  }
  return code;
}

static int
put_region(struct build *build)
{
  const struct ct_installed *installed = build->installed;
  int code = write_region(build);
  if (code != 0 || build->desc_count == 0) {
    return code;
  }
  struct ct_install_region region = {.start = installed->region,
                                     .descs_at = build->descs_at,
                                     .desc_count = build->desc_count,
                                     .store_delta = build->layout->store_delta};
  if ((code = ct_install_write_frames(build->remote->process, &region, CT_REGION_FRAMES_PLAIN)) != 0 ||
      (code = ct_install_write_frames(build->remote->process, &region, CT_REGION_FRAMES_SIGNAL)) != 0 ||
      (code = write_patches(build)) != 0) {
    return code;
  }
  code = ct_install_mark_range(build->remote, build->layout, installed->region,
                               installed->region + installed->region_bytes, CT_TEXT_TRAMPOLINE);
  return code != 0 ? code
                   : publish_to_agent(build, installed->owner, installed->region, build->descs_at, build->descs_at,
                                      build->desc_count, CT_REGION_MAX);
}

/* Faster to fill, and fewer misses in the address caches when many functions are called. No matter if there are none.
 */
static void
want_large_pages(const struct ct_remote *remote, uint64_t region, uint64_t size)
{
  int64_t result;
  uint64_t args[6] = {region, size, MADV_HUGEPAGE};
  if (size >= HUGE_BYTES) {
    remote->syscall(remote->context, SYS_madvise, args, &result);
  }
}

/* Not when the thread that waits for it goes on already: it may stand in what would change. */
static int
patch(const struct ct_remote *remote, const struct ct_texts *texts, struct ct_installed *installed)
{
  if (remote->waits != NULL && !remote->waits(remote->context)) {
    return CT_ETIMEOUT;
  }
  return ct_texts_patch(remote->process, texts, installed->patches, installed->patch_count, &installed->text_bytes);
}

static size_t
trampolines(const struct ct_plan *plan, const struct ct_filter_result *filter_result)
{
  return plan->hooked - filter_result->excluded + filter_result->passthrough;
}

/* What hooks with values take besides. */
static uint64_t
value_bytes(const struct build *build)
{
  uint64_t bytes = 0;
  for (size_t i = 0; i < build->plan->count; i++) {
    enum ct_requested_mode requested = ct_filter_result_mode(build->filter_result, i);
    uint64_t more =
        build->filter_result != NULL && build->filter_result->more != NULL ? build->filter_result->more[i] : 0;
    bytes += requested == CT_REQUESTED_VALUES   ? ct_trampoline_values_bytes(values_form(more))
             : requested == CT_REQUESTED_DETAIL ? DETAIL_MAX
                                                : 0;
  }
  return bytes;
}

static int
install(struct build *build, struct ct_diag *diag)
{
  struct ct_installed *installed = build->installed;
  const struct ct_plan *plan = build->plan;
  uint64_t lo, hi;
  size_t hooks = trampolines(plan, build->filter_result);
  size_t descs = hooks + plan->springboard_count;
  module_extent(plan, installed->base, &lo, &hi);
  uint64_t tail = ct_region_frames_at(0, descs, CT_REGION_FRAMES_COUNT) +
                  (hooks + 2 * plan->springboard_count + 1) * sizeof(struct ct_patch);
  uint64_t size =
      sizeof(struct ct_region_head) + hooks * CELL_MAX + plan->springboard_count * EVICTED_MAX + tail + CT_PAGE_BYTES;
  size += value_bytes(build) + (build->layout->has_gates ? hooks * GATE_MAX : 0);
  size = round_up(size, CT_NEAR_UNIT);
  int code = ct_near_alloc_region(build->remote, build->layout, lo, hi, size, &installed->region, diag);
  if (code != 0) {
    return code;
  }
  installed->region_bytes = size;
  build->descs_at = installed->region + size - round_up(tail, 64);
  build->bytes = malloc(CHUNK_BYTES);
  build->descs = malloc(CHUNK_BYTES);
  if (build->layout->has_gates) {
    installed->gates = calloc(plan->count + 1, sizeof(*installed->gates));
  }
  want_large_pages(build->remote, installed->region, size);
  code = build->bytes != NULL && build->descs != NULL && (installed->gates != NULL || !build->layout->has_gates)
             ? ct_texts_open(build->remote->process, plan->elf, installed->base, &build->texts)
             : CT_ENOMEM;
  if (code != 0) {
    goto close_texts;
  }
  for (size_t i = 0; i < build->other_count; i++) {
    ct_texts_without(&build->texts, build->others[i]->patches, build->others[i]->patch_count);
  }
  if (hooks >= DELIVERY_MIN && !build->is_layer) {
    build->delivery = ct_delivery_start(build->remote->process, plan, build->filter_result, &build->texts,
                                        installed->base, CHUNK_BYTES);
  }
  code = put_region(build);
  if (code != 0) {
    goto close_texts;
  }
  code =
      build->desc_count == 0 /* nothing could be put in, e.g. where threads stand in the way */
          ? ct_install_give_up_region(build->remote, build->layout, installed)
          : ct_near_announce(build->remote, build->layout, CT_PENDING_REGION, 0, 0); /* the agent's list has it now */
  if (code != 0 || build->is_layer) {
    goto close_texts;
  }
  installed->unpatched = build->remote->pcs != NULL;
  if (!installed->unpatched) {
    code = patch(build->remote, &build->texts, installed);
  }
close_texts:
  ct_texts_close(&build->texts);
  ct_elf_drop_pages(plan->elf);
  free(build->bytes);
  free(build->descs);
  return code == 0 ? 0 : ct_fail(diag, code, "cannot write trampolines: %s", ct_err_text(code));
}

int
ct_install_module(const struct ct_remote *remote, struct ct_agent_layout *layout, const struct ct_plan *plan,
                  const struct ct_filter_result *filter_result, uint64_t base, uint32_t first_fn,
                  struct ct_installed *installed, struct ct_diag *diag)
{
  uint64_t begin = ct_now_ns();
  installed->first_fn = first_fn;
  installed->base = base;
  installed->owner = ++layout->last_owner;
  int code = ct_install_mark_text(remote, layout, plan, base, CT_TEXT_MODULE);
  if (code != 0) {
    return ct_fail(diag, code, "cannot write the text table");
  }
  if (plan->own_unwinder && ct_install_publish_unwinder(remote, layout, plan, base, installed->owner) != 0) {
    return ct_fail(diag, CT_EIO, "cannot write the agent's data");
  }
  struct build build = {
      .remote = remote, .layout = layout, .plan = plan, .filter_result = filter_result, .installed = installed};
  if (trampolines(plan, filter_result) != 0) {
    code = install(&build, diag);
  } else if (plan->hooked != 0) {
    code = emit_all(&build) == 0 ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory"); /* all are excluded */
  }
  if (code != 0) {
    ct_install_remove(remote, layout, installed);
    return code;
  }
  installed->install_ns = ct_now_ns() - begin;
  return 0;
}

static uint64_t
patched_bytes(const struct ct_installed *installed)
{
  uint64_t bytes = 0, next = 0; /* the first page that is not counted yet */
  for (size_t i = 0; i < installed->patch_count; i++) {
    const struct ct_patch *patch = &installed->patches[i];
    uint64_t from = patch->address / CT_PAGE_BYTES, to = (patch->address + patch->length - 1) / CT_PAGE_BYTES + 1;
    from = from < next ? next : from;
    bytes += from < to ? (to - from) * CT_PAGE_BYTES : 0;
    next = to > next ? to : next;
  }
  return bytes;
}

int
ct_install_patch(const struct ct_remote *remote, struct ct_installed *installed, bool guards_only)
{
  size_t strange;
  if (!installed->unpatched) {
    return 0;
  }
  if (guards_only) {
    return ct_patches_write_guards(remote->process, installed->patches, installed->patch_count);
  }
  int code = ct_patches_write(remote->process, installed->patches, NULL, installed->patch_count, false, &strange);
  installed->unpatched = false;
  installed->text_bytes = patched_bytes(installed);
  return code;
}

int
ct_install_layer(const struct ct_remote *remote, struct ct_agent_layout *layout, const struct ct_plan *plan,
                 const struct ct_filter_result *filter_result, uint64_t base, uint32_t first_fn,
                 const struct ct_installed *const *others, size_t count, struct ct_installed *installed,
                 struct ct_diag *diag)
{
  uint64_t begin = ct_now_ns();
  installed->first_fn = first_fn;
  installed->base = base;
  installed->owner = ++layout->last_owner;
  struct build build = {.remote = remote,
                        .layout = layout,
                        .plan = plan,
                        .filter_result = filter_result,
                        .installed = installed,
                        .others = others,
                        .other_count = count,
                        .is_layer = true};
  int code = install(&build, diag);
  if (code != 0) {
    ct_install_remove(remote, layout, installed);
    return code;
  }
  installed->install_ns = ct_now_ns() - begin;
  return 0;
}

int
ct_install_again(const struct ct_remote *remote, const struct ct_agent_layout *layout, const struct ct_plan *plan,
                 struct ct_installed *installed)
{
  uint64_t begin = ct_now_ns();
  struct ct_texts texts = {0};
  int code = ct_install_mark_text(remote, layout, plan, installed->base, CT_TEXT_MODULE);
  code = code == 0 ? ct_texts_open(remote->process, plan->elf, installed->base, &texts) : code;
  if (code != 0) {
    goto close_texts;
  }
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    uint8_t install_refusal = installed->install_refusals == NULL ? CT_REFUSED_NOT : installed->install_refusals[i];
    bool in_use = planned->refusal == CT_REFUSED_NOT &&
                  (install_refusal == CT_REFUSED_NOT || install_refusal == CT_REFUSED_EXCLUDED);
    if (in_use && ct_texts_unchanged(&texts, installed->base + planned->address + planned->patch_offset,
                                     planned->window.length) == NULL) {
      code = CT_EFORMAT;
      goto close_texts;
    }
  }
  for (size_t i = 0; i < installed->patch_count; i++) {
    const struct ct_patch *patch = &installed->patches[i];
    if (ct_texts_unchanged(&texts, patch->address, patch->length) == NULL) {
      code = CT_EFORMAT;
      goto close_texts;
    }
  }
  code = patch(remote, &texts, installed);
close_texts:
  ct_texts_close(&texts);
  installed->install_ns = ct_now_ns() - begin;
  return code;
}
