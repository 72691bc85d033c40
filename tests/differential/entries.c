/* SPDX-License-Identifier: MIT */
/*
 * See entries.h. Each copy is kept twice, as the file has it and as it is patched; the bytes around the function of a
 * case are exchanged between the runs, so that both happen at the same addresses.
 *
 *   without   the displaced instructions, one by one, up to where they go on
 *   with      the patch, whatever leads from there to the trampoline, the trampoline, the displaced instructions
 *
 * After that the same registers (flags: those that the instructions themselves set), the same memory, but:
 *   - a call-through hook has its return point in the ra_slot, and the true address in the store; when the instructions
 *     have returned already, the return has been recorded too, and the flags are nobody's;
 *   - the 40 bytes below ra_slot that the trampoline uses, 120 when it goes through the agent, may differ where the
 *     instructions have not written to them.
 */
#include "entries.h"

#include "agency.h"
#include "memory.h"
#include "target/elf.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { IMAGES_MAX = 32, AROUND = 512, SCRATCH = 40, AGENT_SCRATCH = 120, RARE_MAX = 4096 };
#define ARENA_AT    0x520000000000ull
#define STORE_DELTA 0x1000000000ll
#define IMAGES_AT   0x680000000000ull
#define SLOT        (8ull << 30)

struct patched_image {
  struct image image;
  struct agency_module module;
  uint8_t *patched;        /* a copy of image.lo .. hi with the patches */
  uint32_t *fn_of;         /* id of each function of the plan, 0: not hooked */
  uint32_t rare[RARE_MAX]; /* functions that no plain jump fits */
  size_t rare_count;
};

static struct patched_image images[IMAGES_MAX];
static size_t image_count;
static struct memory memory;
static struct agency agency;

enum entry_kind { KIND_ENTER, KIND_EVICTED, KIND_RETURN };

struct entry_case {
  const struct patched_image *image;
  const struct ct_planned *function;
  const struct ct_hook_desc *desc;
  enum entry_kind kind;
  uint64_t ra_slot; /* rsp at the entry */
  uint64_t caller;  /* what is in the return-address slot with the patches */
  uint64_t returns; /* the true return address */
  bool recorded;    /* nothing leads to a slow path */
  bool called_through;
  bool returned; /* called through, and the displaced instructions end in a return */
  struct piece piece;
};

/* ---- set-up ---- */

static uint8_t *
file_bytes(const struct patched_image *p, uint64_t address, size_t size)
{
  return (uint8_t *)ct_elf_bytes(p->image.plan->elf, address - p->image.base, size);
}

/* Makes the code around an address that of the file, or the patched one. */
static void
exchange(const struct patched_image *p, uint64_t around, bool patched)
{
  uint64_t lo = around - AROUND > p->image.lo ? around - AROUND : p->image.lo;
  uint64_t hi = around + AROUND < p->image.hi ? around + AROUND : p->image.hi;
  size_t left = ct_elf_bytes_left(p->image.plan->elf, around - p->image.base);
  uint64_t start = around;
  while (start > lo &&
         ct_elf_bytes_left(p->image.plan->elf, start - 1 - p->image.base) == left + (around - start) + 1) {
    start--;
  }
  hi = hi < around + left ? hi : around + left;
  image_protect(&p->image, start, hi - start, true);
  memcpy((void *)start, patched ? p->patched + (start - p->image.lo) : file_bytes(p, start, hi - start), hi - start);
  image_protect(&p->image, start, hi - start, false);
}

static bool
load(struct patched_image *p, const char *path, uint64_t base, char *text, size_t size)
{
  struct image *image = &p->image;
  if (!image_load(image, path, base)) {
    return false;
  }
  ct_plan_use_int3(image->plan);
  size_t bytes = image->hi - image->lo;
  p->patched = malloc(bytes);
  p->fn_of = calloc(image->plan->count, sizeof(*p->fn_of));
  if (p->patched == NULL || p->fn_of == NULL) {
    return false;
  }
  uint8_t *clean = malloc(bytes);
  memcpy(clean, (void *)image->lo, bytes);
  if (agency_install(&agency, &p->module, image->plan, image->base, text, size) != 0) {
    return false;
  }
  memcpy(p->patched, (void *)image->lo, bytes);
  image_protect(image, image->lo, bytes, true);
  memcpy((void *)image->lo, clean, bytes);
  image_protect(image, image->lo, bytes, false);
  free(clean);
  uint32_t fn = p->module.installed.first_fn;
  for (size_t i = 0; i < image->plan->count; i++) {
    const struct ct_planned *f = &image->plan->functions[i];
    if (f->refusal != CT_REFUSED_NOT) {
      continue;
    }
    bool late = p->module.installed.install_refusals != NULL && p->module.installed.install_refusals[i] != 0;
    p->fn_of[i] = late ? 0 : fn;
    fn++;
    if (!late && f->tactic > CT_TACTIC_PADDING && p->rare_count < RARE_MAX) {
      p->rare[p->rare_count++] = (uint32_t)i;
    }
  }
  return true;
}

int
entries_set_up(const char *const *paths, size_t count, char *text, size_t size)
{
  text[0] = 0;
  if (memory_set_up(&memory, ARENA_AT) != 0 || agency_set_up(&agency, ARENA_AT, ARENA_BYTES, STORE_DELTA) != 0) {
    return -1;
  }
  for (size_t i = 0; i < count && image_count < IMAGES_MAX; i++) {
    struct patched_image *p = &images[image_count];
    memset(p, 0, sizeof(*p));
    if (load(p, paths[i], IMAGES_AT + image_count * SLOT + SLOT / 2, text, size)) {
      image_count++;
    }
  }
  return image_count != 0 && text[0] == 0 ? 0 : -1;
}

void
entries_tear_down(void)
{
  for (size_t i = 0; i < image_count; i++) {
    ct_installed_free(&images[i].module.installed);
    image_unload(&images[i].image);
    free(images[i].patched);
    free(images[i].fn_of);
  }
  memory_tear_down(&memory);
  agency_tear_down(&agency);
}

/* ---- choosing ---- */

static bool
choose_function(struct entry_case *c, struct rng *rng)
{
  const struct patched_image *p = &images[rng_below(rng, image_count)];
  const struct ct_plan *plan = p->image.plan;
  c->image = p;
  for (int attempt = 0; attempt < 32; attempt++) {
    size_t i = p->rare_count != 0 && rng_chance(rng, 50) ? p->rare[rng_below(rng, p->rare_count)]
                                                         : rng_below(rng, plan->count);
    if (p->fn_of[i] == 0) {
      continue;
    }
    c->function = &plan->functions[i];
    c->desc = agency_desc(&p->module, p->fn_of[i], p->image.base + c->function->address + c->function->patch_offset);
    return c->desc != NULL;
  }
  return false;
}

/* An address in the text of some module, as a call pushes, but not one near the function itself. */
static uint64_t
any_text(const struct entry_case *c, struct rng *rng)
{
  const struct image *image = &images[rng_below(rng, image_count)].image;
  uint64_t at = image->base + image->plan->functions[rng_below(rng, image->plan->count)].address + 5;
  uint64_t function = c->image->image.base + c->function->address;
  return at - function < 256 ? function - 1 : at;
}

/* Who calls, and whether there is room for the event. */
static void
choose_caller(struct entry_case *c, struct rng *rng)
{
  unsigned kind = (unsigned)rng_below(rng, 20);
  uint64_t true_address = any_text(c, rng);
  c->recorded = true;
  c->caller = c->returns = true_address;
  agency_ready(&agency, ARENA_AT, ARENA_BYTES, kind != 0);
  if (kind == 1) {
    agency.control->stack_len = 0;
  }
  if (kind <= 1) {
    c->recorded = false;
  }
  if (kind == 2) { /* code of a JIT compiler */
    c->caller = c->returns = 0x123400000000 + rng_below(rng, 1 << 20);
  }
  if (kind >= 3 && kind <= 5) { /* a tail call out of another hooked function */
    const struct agency_module *module = &c->image->module;
    const struct ct_hook_desc *other = &module->descs[rng_below(rng, module->desc_count)];
    c->caller = other->ret_point != 0 && other != c->desc ? other->ret_point : module->installed.region;
    c->returns = c->desc->mode == CT_HOOK_ENTER ? true_address : c->caller;
  }
  uint8_t text = agency.table[c->caller >> CT_TABLE_SHIFT];
  c->called_through = c->kind == KIND_ENTER && c->recorded && c->desc->mode == CT_HOOK_FULL && text == CT_TEXT_MODULE;
}

static bool
choose(struct entry_case *c, struct rng *rng)
{
  if (!choose_function(c, rng)) {
    return false;
  }
  const struct ct_planned *f = c->function;
  const struct ct_window *window = &f->window;
  uint64_t address = c->image->image.base + f->address + f->patch_offset;
  c->kind = KIND_ENTER;
  if (f->tactic == CT_TACTIC_EVICT && rng_chance(rng, 50)) {
    const struct ct_springboard *springboard = &c->image->image.plan->springboard[f->springboard];
    c->kind = KIND_EVICTED;
    window = &springboard->window;
    address = c->image->image.base + springboard->evicted;
    c->desc = agency_desc(&c->image->module, 0, address);
    if (c->desc == NULL) {
      return false;
    }
  } else if (c->desc->mode == CT_HOOK_FULL && rng_chance(rng, 20)) {
    c->kind = KIND_RETURN;
  }
  choose_caller(c, rng);
  return piece_take(&c->piece, file_bytes(c->image, address, window->length), address, window);
}

/* ---- running ---- */

struct run {
  const struct entry_case *c;
  bool patched, was_in_region;
  uint32_t index;
  bool lost; /* it went where nothing of ours is */
};

static bool
in_region(const struct run *run, uint64_t rip)
{
  const struct ct_installed *installed = &run->c->image->module.installed;
  return rip - installed->region < installed->region_bytes;
}

/* On the way from the entry to the trampoline: the patch itself, a jump springboard, a stub. */
static bool
on_the_way(const struct entry_case *c, uint64_t rip)
{
  const struct ct_planned *f = c->function;
  const struct ct_plan *plan = c->image->image.plan;
  if (f->tactic == CT_TACTIC_SHORT || f->tactic == CT_TACTIC_EVICT) {
    return rip == c->image->image.base + plan->springboard[f->springboard].relay;
  }
  for (size_t i = 0; f->tactic == CT_TACTIC_PUN && i < agency.layout.stub_count; i++) {
    if (agency.layout.stubs[i].address == rip) {
      return true;
    }
  }
  return false;
}

/* As the agent's handler of SIGTRAP does (agent/trap.c): after an int3 of ours, on at the trampoline. */
static bool
trapped(uint64_t rip)
{
  for (uint64_t i = 0; i < agency.config->region_count; i++) {
    const struct ct_region *region = &agency.config->regions[i];
    if (region->lo == rip - 1 && region->desc_count == 0 && region->desc != 0) {
      machine_redirect(region->desc);
      return true;
    }
  }
  return false;
}

static bool
look_patched(struct run *run, uint64_t rip)
{
  if (run->was_in_region && rip == run->c->caller) {
    return false; /* returned */
  }
  if (in_region(run, rip)) {
    run->was_in_region = true;
    return true;
  }
  if (run->was_in_region) {
    return agency_is_stub(rip);
  }
  if (run->c->function->tactic == CT_TACTIC_INT3 && rip == run->c->piece.address + 1 && trapped(rip)) {
    return true;
  }
  run->lost = !on_the_way(run->c, rip);
  return !run->lost;
}

static bool
look_clean(struct run *run, uint64_t rip)
{
  const struct piece *piece = &run->c->piece;
  uint64_t now = piece->address + piece->offset[run->index], next = piece->address + piece->offset[run->index + 1];
  if (rip == now && piece->repeats[run->index]) {
    return true;
  }
  if (rip != next || run->index + 1 >= piece->count) {
    return false;
  }
  run->index++;
  return true;
}

static bool
look(void *context, const uint64_t reg[16], uint64_t rip)
{
  struct run *run = context;
  return run->patched ? look_patched(run, rip) : look_clean(run, rip);
}

struct outcome {
  struct machine machine;
  struct ending ending;
  uint32_t index;
  bool lost;
};

static void
put_ra_slot(const struct entry_case *c, uint64_t value)
{
  if (c->kind == KIND_ENTER && c->ra_slot - ARENA_AT <= ARENA_BYTES - 8) {
    memcpy((void *)c->ra_slot, &value, sizeof(value));
  }
}

static void
run_one(struct entry_case *c, bool patched, const struct machine *begin, struct outcome *out)
{
  struct run run = {.c = c, .patched = patched};
  machine_run(begin, look, &run, &out->machine, &out->ending);
  out->index = run.index;
  out->lost = run.lost;
  if (!patched || out->ending.signal == 0) {
    return;
  }
  /* The displaced instruction that has faulted. */
  uint64_t at = out->machine.rip - c->desc->after_callout;
  for (out->index = 0; out->index + 1 < c->desc->map_count && at >= c->desc->map_new[out->index + 1];) {
    out->index++;
  }
}

/* ---- comparing ---- */

static bool
ending_differs(const struct outcome *a, const struct outcome *b, char *text, size_t size)
{
  if (b->lost) {
    snprintf(text, size, "the patch leads to %#llx", (unsigned long long)b->machine.rip);
  } else if (a->ending.signal != b->ending.signal || a->ending.code != b->ending.code ||
             a->ending.address != b->ending.address) {
    snprintf(text, size, "ends with signal %d code %d address %#llx at %#llx, not %d %d %#llx", b->ending.signal,
             b->ending.code, (unsigned long long)b->ending.address, (unsigned long long)b->machine.rip,
             a->ending.signal, a->ending.code, (unsigned long long)a->ending.address);
  } else if (a->ending.signal == 0 && a->machine.rip != b->machine.rip) {
    snprintf(text, size, "goes on at %#llx, not %#llx", (unsigned long long)b->machine.rip,
             (unsigned long long)a->machine.rip);
  } else if (a->ending.signal != 0 && a->index != b->index) {
    snprintf(text, size, "faults in instruction %u, not %u", b->index, a->index);
  } else {
    return false;
  }
  return true;
}

/* May the byte at this address differ? */
static bool
is_scratch(const struct entry_case *c, uint64_t at, uint8_t before, uint8_t without)
{
  bool plain = c->recorded && agency.table[c->caller >> CT_TABLE_SHIFT] == CT_TEXT_MODULE && c->function->callout == 0;
  return c->kind == KIND_ENTER && at < c->ra_slot && at >= c->ra_slot - (plain ? SCRATCH : AGENT_SCRATCH) &&
         before == without;
}

static bool
memory_differs(const struct entry_case *c, char *text, size_t size)
{
  const uint8_t *bytes = memory.arena.bytes;
  for (size_t i = 0; i < ARENA_BYTES; i++) {
    uint64_t at = ARENA_AT + i;
    bool in_ra_slot = c->called_through && !c->returned && at - c->ra_slot < 8;
    if (bytes[i] != memory.first[i] && !in_ra_slot && !is_scratch(c, at, memory.before[i], memory.first[i])) {
      snprintf(text, size, "memory at %p (ra_slot %+lld) is %02x, not %02x", (const void *)(bytes + i),
               (long long)(at - c->ra_slot), bytes[i], memory.first[i]);
      return true;
    }
  }
  return memory_image_differs(&memory, text, size);
}

static uint64_t
word_at(uint64_t address)
{
  uint64_t word;
  memcpy(&word, (void *)address, sizeof(word));
  return word;
}

/* The event, the return-address slot and the store. */
static bool
record_differs(const struct entry_case *c, uint64_t first_kind, char *text, size_t size)
{
  uint64_t fn = c->desc->fn, cursor = agency.control->cursor - (uint64_t)agency.segment - AGENCY_TAG;
  bool point = c->desc->mode != CT_HOOK_FULL;
  uint8_t who = agency.table[c->caller >> CT_TABLE_SHIFT];
  bool expected = c->recorded && (c->desc->mode == CT_HOOK_SAMPLED || c->kind == KIND_RETURN ||
                                  (point ? who != CT_TEXT_TRAMPOLINE : who == CT_TEXT_MODULE));
  fn |= c->desc->mode == CT_HOOK_SAMPLED ? 1u << CT_FN_WEIGHT_SHIFT : 0;
  uint64_t word = (point ? (fn | CT_FN_POINT_BIT) << CT_WORD_FN_SHIFT : fn << CT_WORD_FN_SHIFT | first_kind) |
                  AGENCY_TAG | (c->ra_slot & 0xffffffff) << 32;
  if (expected && (cursor != (c->returned ? 2 : 1) * CT_EVENT_BYTES || agency.segment[0].word != word)) {
    snprintf(text, size, "cursor at %llu, event %#llx, not %#llx", (unsigned long long)cursor,
             (unsigned long long)agency.segment[0].word, (unsigned long long)word);
  } else if (!expected && agency.segment[0].word != 0) {
    snprintf(text, size, "an event %#llx where none is expected", (unsigned long long)agency.segment[0].word);
  } else if (c->called_through && !c->returned &&
             (word_at(c->ra_slot) != c->desc->ret_point || word_at(c->ra_slot + STORE_DELTA) != c->caller)) {
    snprintf(text, size, "ra_slot %#llx, store %#llx; not %#llx, %#llx", (unsigned long long)word_at(c->ra_slot),
             (unsigned long long)word_at(c->ra_slot + STORE_DELTA), (unsigned long long)c->desc->ret_point,
             (unsigned long long)c->caller);
  } else {
    return false;
  }
  return true;
}

/* A call whose pointer cannot be read faults after the push that stands for it. Known; see windows.c. */
static bool
is_known_push(const struct entry_case *c, const struct outcome *a)
{
  const ZydisDecodedInstruction *in = &c->piece.in[a->index];
  return a->ending.signal != 0 && in->meta.category == ZYDIS_CATEGORY_CALL && !in->raw.imm[0].is_relative;
}

static enum case_result
run_enter(struct entry_case *c, struct machine *begin, struct rng *rng, struct entries_count *count, char *text,
          size_t size)
{
  static struct outcome clean, other, patched;
  begin->rip = c->piece.address;
  c->ra_slot = begin->reg[RSP];
  memory_begin(&memory, &c->image->image, &c->piece, begin, rng);
  exchange(c->image, c->piece.address, false);
  put_ra_slot(c, c->returns);
  run_one(c, false, begin, &clean);
  memory_first_done(&memory);
  /* Flags that do not depend on those at the beginning are set by the instructions themselves. */
  begin->flags ^= MACHINE_FLAGS & ~0x400ull;
  put_ra_slot(c, c->returns);
  run_one(c, false, begin, &other);
  uint64_t flags =
      c->kind == KIND_EVICTED ? MACHINE_FLAGS : MACHINE_FLAGS & ~(clean.machine.flags ^ other.machine.flags);
  begin->flags ^= MACHINE_FLAGS & ~0x400ull;
  memory_again(&memory);
  exchange(c->image, c->piece.address, true);
  put_ra_slot(c, c->caller);
  if (c->ra_slot - ARENA_AT <= ARENA_BYTES - 8) {
    memcpy((void *)(c->ra_slot + STORE_DELTA), &c->returns, 8);
  }
  run_one(c, true, begin, &patched);
  exchange(c->image, c->piece.address, false);
  if (clean.ending.no_step || other.ending.no_step || patched.ending.no_step) {
    memory_end(&memory);
    count->skipped++;
    return CASE_SKIPPED;
  }
  c->returned = c->called_through && clean.ending.signal == 0 && clean.machine.rip == c->returns;
  flags = c->returned ? 0x400 : flags;
  bool differs = ending_differs(&clean, &patched, text, size);
  if (!differs && !is_known_push(c, &clean)) {
    differs = machine_differs(&clean.machine, &patched.machine, flags, text, size) || memory_differs(c, text, size);
  }
  if (!differs && c->kind == KIND_ENTER && clean.ending.signal == 0) {
    differs = record_differs(c, CT_WORD_ENTER, text, size);
  }
  memory_end(&memory);
  count->faults += clean.ending.signal != 0;
  return differs ? CASE_DIFFERS : CASE_SAME;
}

/* The body returns into the trampoline; any registers may hold results or what the caller keeps there. */
static enum case_result
run_return(struct entry_case *c, struct machine *begin, struct rng *rng, char *text, size_t size)
{
  static struct outcome back;
  struct run run = {.c = c, .patched = true, .was_in_region = true};
  memory_begin(&memory, NULL, NULL, begin, rng);
  c->ra_slot = begin->reg[RSP] & ~7ull;
  c->caller = any_text(c, rng);
  begin->reg[RSP] = c->ra_slot + 8;
  begin->rip = c->desc->ret_point;
  memcpy((void *)(c->ra_slot + STORE_DELTA), &c->caller, 8);
  machine_run(begin, look, &run, &back.machine, &back.ending);
  if (back.ending.signal != 0 || back.machine.rip != c->caller) {
    snprintf(text, size, "returns to %#llx with signal %d, not to %#llx", (unsigned long long)back.machine.rip,
             back.ending.signal, (unsigned long long)c->caller);
    return CASE_DIFFERS;
  }
  bool ra_slot_is_right = word_at(c->ra_slot) == c->caller;
  memcpy((void *)c->ra_slot, memory.before + (c->ra_slot - ARENA_AT), 8);
  memcpy(memory.first, memory.before, ARENA_BYTES);
  if (!ra_slot_is_right) {
    snprintf(text, size, "the true address is not in the return-address slot again");
  }
  c->kind = KIND_ENTER; /* its rules of what may differ below the return-address slot */
  bool differs =
      !ra_slot_is_right || machine_differs(begin, &back.machine, 0x400, text, size) || memory_differs(c, text, size);
  c->kind = KIND_RETURN;
  return differs || record_differs(c, CT_WORD_RETURN, text, size) ? CASE_DIFFERS : CASE_SAME;
}

static void
count_it(const struct entry_case *c, struct entries_count *count)
{
  count->same++;
  count->returns += c->kind == KIND_RETURN;
  count->evicted += c->kind == KIND_EVICTED;
  if (c->kind != KIND_ENTER) {
    return;
  }
  count->tactic[c->function->tactic]++;
  count->enter_only += c->desc->mode != CT_HOOK_FULL;
  count->tails += agency.table[c->caller >> CT_TABLE_SHIFT] == CT_TEXT_TRAMPOLINE;
  count->slow += !c->recorded;
}

enum case_result
entries_case(uint64_t seed, uint64_t number, struct entries_count *count, char *text, size_t size)
{
  static struct entry_case c;
  static struct machine machine;
  struct rng rng = rng_of(seed, number);
  memset(&c, 0, offsetof(struct entry_case, piece));
  text[0] = 0;
  if (!choose(&c, &rng)) {
    count->skipped++;
    return CASE_SKIPPED;
  }
  machine_random(&machine, &rng);
  piece_place(&c.piece, &memory.arena, &machine, &rng);
  enum case_result result = c.kind == KIND_RETURN ? run_return(&c, &machine, &rng, text, size)
                                                  : run_enter(&c, &machine, &rng, count, text, size);
  if (result == CASE_SAME) {
    count_it(&c, count);
    return result;
  }
  size_t used = strlen(text);
  used += (size_t)snprintf(text + used, size - used, "\n     %s+%#llx %s, %s, mode %u, caller kind %u:\n",
                           ct_elf_path(c.image->image.plan->elf), (unsigned long long)c.function->address,
                           ct_tactic_name(c.function->tactic),
                           c.kind == KIND_ENTER     ? "enter"
                           : c.kind == KIND_EVICTED ? "evicted"
                                                    : "return",
                           c.desc->mode, agency.table[c.caller >> CT_TABLE_SHIFT]);
  if (used < size) {
    piece_capture(&c.piece, file_bytes(c.image, c.piece.address, c.piece.bytes), text + used, size - used);
  }
  return result;
}
