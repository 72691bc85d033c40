/* SPDX-License-Identifier: MIT */
/*
 * See windows.h. Memory of a case, in this process:
 *
 *   the file's copy      not writable, but for the pages that an operand may write to
 *   arena                64 KiB with random content, nothing around it; the stack pointer is in its middle
 *   new place            within 1.9 GiB of the old one, as regions of trampolines are
 *
 * What an operand may touch in the file's copy is kept before the first run, compared after both and put back.
 */
#include "windows.h"

#include "memory.h"
#include "target/elf.h"

#include <stdio.h>
#include <sys/mman.h>

enum { IMAGES_MAX = 32, PLACE_BYTES = 4096, CANDIDATES = 8, CODE_MAX = 64 };
#define ARENA_AT  0x510000000000ull
#define MADE_AT   0x510000100000ull /* made-up code, within reach of the arena */
#define IMAGES_AT 0x600000000000ull
#define SLOT      (8ull << 30) /* address space for each image and what is moved out of it */

static struct image images[IMAGES_MAX];
static size_t image_count;
static struct memory memory;

/* The places that instructions are moved to, for image i; [image_count] is that of made-up code. */
static uint8_t *places[IMAGES_MAX + 1];

struct window_case {
  const struct image *image; /* NULL: made up */
  uint64_t address;
  struct ct_window window;
  struct piece piece;
  uint8_t *place;
  size_t moved_bytes;
  struct ct_relocation_map map;
};

/* Where a run stands. */
struct run {
  const struct window_case *c;
  bool moved;
  uint32_t index;
};

static uint8_t *
map_place(uint64_t address)
{
  return memory_map(address, PLACE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC);
}

int
windows_set_up(const char *const *paths, size_t count)
{
  if (memory_set_up(&memory, ARENA_AT) != 0 || map_place(MADE_AT) == NULL) {
    return -1;
  }
  for (size_t i = 0; i < count && image_count < IMAGES_MAX; i++) {
    struct image *image = &images[image_count];
    if (!image_load(image, paths[i], IMAGES_AT + image_count * SLOT + SLOT / 2)) {
      continue;
    }
    /* Below it and above, near and far. */
    uint64_t far = ((0x10000000ull + image_count * 0x9000000) % 0x70000000) & ~0xffffull;
    places[image_count] = map_place(image_count % 2 == 0 ? image->lo - far : image->hi + far);
    if (places[image_count] == NULL) {
      return -1;
    }
    image_count++;
  }
  places[image_count] = map_place(MADE_AT + 0x65430000);
  return image_count != 0 && places[image_count] != NULL ? 0 : -1;
}

void
windows_tear_down(void)
{
  for (size_t i = 0; i < image_count; i++) {
    image_unload(&images[i]);
  }
  memory_tear_down(&memory);
}

/* ---- choosing ---- */

static const struct ct_planned *
any_function(const struct image *image, struct rng *rng, bool hooked)
{
  const struct ct_plan *plan = image->plan;
  for (int attempt = 0; attempt < 32; attempt++) {
    const struct ct_planned *f = &plan->functions[rng_below(rng, plan->count)];
    if (f->size != 0 && (f->refusal == CT_REFUSED_NOT || !hooked)) {
      return f;
    }
  }
  return NULL;
}

static bool
at_an_entry(struct window_case *c, struct rng *rng)
{
  const struct ct_planned *f = any_function(c->image, rng, true);
  if (f == NULL) {
    return false;
  }
  c->address = c->image->base + f->address + f->patch_offset;
  c->window = f->window;
  if (f->tactic == CT_TACTIC_EVICT && rng_chance(rng, 70)) {
    const struct ct_springboard *springboard = &c->image->plan->springboard[f->springboard];
    c->address = c->image->base + springboard->evicted;
    c->window = springboard->window;
  }
  return true;
}

/* How rarely one sees the like: of several places the one is taken where most is to be done. */
static unsigned
interest(unsigned traits)
{
  static const uint8_t weights[] = {4, 2, 4, 6, 1, 2, 6, 12, 1};
  unsigned sum = 0;
  for (size_t i = 0; i < sizeof(weights); i++) {
    sum += (traits >> i & 1) * weights[i];
  }
  return sum;
}

/* Anywhere in a function, at an instruction as one meets them from its start on. */
static bool
in_a_body(struct window_case *c, struct rng *rng)
{
  const struct ct_planned *f = any_function(c->image, rng, false);
  uint64_t best = 0;
  unsigned most = 0;
  if (f == NULL) {
    return false;
  }
  uint64_t start = c->image->base + f->address;
  size_t size = f->size < 4096 ? f->size : 4096, wanted[CANDIDATES], at = 0;
  for (int i = 0; i < CANDIDATES; i++) {
    wanted[i] = rng_below(rng, size);
  }
  while (at + CT_JUMP_BYTES < size) {
    struct ct_window one;
    const uint8_t *code = image_at(c->image, start + at);
    if (code == NULL || ct_window_find(code, size - at, start + at, 1, &one) != CT_WINDOW_OK) {
      break;
    }
    for (int i = 0; i < CANDIDATES; i++) {
      if (wanted[i] < at || wanted[i] >= at + one.length ||
          ct_window_find(code, size - at, start + at, CT_JUMP_BYTES, &c->window) != CT_WINDOW_OK ||
          !piece_take(&c->piece, code, start + at, &c->window) || interest(c->piece.traits) < most) {
        continue;
      }
      most = interest(c->piece.traits);
      best = start + at;
    }
    at += one.length;
  }
  c->address = best;
  return best != 0 &&
         ct_window_find(image_at(c->image, best), start + size - best, best, CT_JUMP_BYTES, &c->window) == CT_WINDOW_OK;
}

/* Bytes that often are instructions, with the arena in reach of rip. */
static size_t
make_instruction(uint8_t *at, struct rng *rng)
{
  static const uint8_t legacy[] = {0x66, 0xf2, 0xf3, 0x2e, 0x3e, 0x64, 0x67, 0xf0};
  size_t n = 0;
  while (rng_chance(rng, 25) && n < 3) {
    at[n++] = legacy[rng_below(rng, sizeof(legacy))];
  }
  switch (rng_below(rng, 8)) {
  case 0: /* VEX, two bytes */
    at[n++] = 0xc5;
    at[n++] = (uint8_t)rng_next(rng);
    break;
  case 1:
    at[n++] = 0xc4;
    at[n++] = (uint8_t)(0xe0 | (1 + rng_below(rng, 3)));
    at[n++] = (uint8_t)rng_next(rng);
    break;
  case 2: /* EVEX */
    at[n++] = 0x62;
    at[n++] = (uint8_t)(0xf0 | (1 + rng_below(rng, 3)));
    at[n++] = (uint8_t)(rng_next(rng) | 4);
    at[n++] = (uint8_t)(rng_next(rng) & 0x7f);
    break;
  case 3:
    at[n++] = 0x0f;
    break;
  case 4:
    at[n++] = (uint8_t)(0x40 | rng_below(rng, 16));
    at[n++] = 0x0f;
    break;
  case 5:
    at[n++] = 0x0f;
    at[n++] = rng_chance(rng, 50) ? 0x38 : 0x3a;
    break;
  case 6:
    at[n++] = (uint8_t)(0x40 | rng_below(rng, 16));
    break;
  default:
    break;
  }
  at[n++] = (uint8_t)rng_next(rng);
  at[n++] = rng_chance(rng, 50) ? (uint8_t)((rng_next(rng) & 0x38) | 5) : (uint8_t)rng_next(rng);
  return n;
}

/* One that goes elsewhere; what follows is a distance, or an operand. */
static size_t
make_branch(uint8_t *at, struct rng *rng)
{
  static const uint8_t prefixes[] = {0x67, 0x67, 0x2e, 0x3e, 0xf2};
  size_t n = 0;
  while (rng_chance(rng, 30) && n < 2) {
    at[n++] = prefixes[rng_below(rng, sizeof(prefixes))];
  }
  switch (rng_below(rng, 6)) {
  case 0:
    at[n++] = (uint8_t)(0x70 | rng_below(rng, 16));
    break;
  case 1:
    at[n++] = 0x0f;
    at[n++] = (uint8_t)(0x80 | rng_below(rng, 16));
    break;
  case 2:
    at[n++] = (uint8_t)(0xe0 | rng_below(rng, 4));
    break;
  case 3:
    at[n++] = (uint8_t)(0xe8 | rng_below(rng, 4));
    break;
  default: /* call, jmp and push of registers and memory; often of rsp, r12 and rip */
    if (rng_chance(rng, 50)) {
      at[n++] = (uint8_t)(0x40 | rng_below(rng, 16));
    }
    at[n++] = 0xff;
    at[n] = (uint8_t)((rng_next(rng) & 0xc7) | (1 + rng_below(rng, 3)) << 4);
    at[n] = rng_chance(rng, 40) ? (uint8_t)((at[n] & 0xf8) | 4 | rng_below(rng, 2)) : at[n];
    n++;
    break;
  }
  return n;
}

static bool
made_up(struct window_case *c, struct rng *rng)
{
  uint8_t *code = (uint8_t *)MADE_AT + 64 + rng_below(rng, 1024);
  rng_fill(rng, code, CODE_MAX);
  size_t n = rng_chance(rng, 30) ? make_branch(code, rng) : make_instruction(code, rng);
  int32_t distance = (int32_t)(ARENA_AT + ARENA_BYTES / 8 + rng_below(rng, ARENA_BYTES / 2) - (uint64_t)(code + n));
  memcpy(code + n, &distance, sizeof(distance));
  c->address = (uint64_t)code;
  return ct_window_find(code, CODE_MAX, c->address, CT_JUMP_BYTES, &c->window) == CT_WINDOW_OK;
}

static bool
choose(struct window_case *c, struct rng *rng)
{
  uint64_t kind = rng_below(rng, 10);
  size_t i = (size_t)rng_below(rng, image_count);
  c->image = kind < 8 ? &images[i] : NULL;
  c->place = places[kind < 8 ? i : image_count];
  bool found = kind < 3 ? at_an_entry(c, rng) : kind < 8 ? in_a_body(c, rng) : made_up(c, rng);
  return found && piece_take(&c->piece, (const uint8_t *)c->address, c->address, &c->window);
}

/* ---- running ---- */

static bool
look_here(struct run *run, uint64_t rip)
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
look_there(struct run *run, uint64_t rip)
{
  const struct window_case *c = run->c;
  uint64_t offset = rip - (uint64_t)c->place;
  if (offset >= c->moved_bytes) {
    return false;
  }
  while (run->index + 1 < c->map.count && offset >= c->map.to[run->index + 1]) {
    run->index++;
  }
  return true;
}

static bool
look(void *context, const uint64_t reg[16], uint64_t rip)
{
  struct run *run = context;
  return run->moved ? look_there(run, rip) : look_here(run, rip);
}

static bool
memory_differs(char *text, size_t size)
{
  const uint8_t *bytes = memory.arena.bytes;
  for (size_t i = 0; i < ARENA_BYTES; i++) {
    if (bytes[i] != memory.first[i]) {
      snprintf(text, size, "memory at %p is %02x, not %02x", (const void *)(bytes + i), bytes[i], memory.first[i]);
      return true;
    }
  }
  return memory_image_differs(&memory, text, size);
}

struct outcome {
  struct machine machine;
  struct ending ending;
  uint32_t index; /* of the instruction that it ended in */
};

/*
 * A call whose pointer cannot be read faults after the push that stands for it: rsp is lower by 8 and the return
 * address is there. Known; the state is made that of the call.
 */
static void
undo_push(const struct window_case *c, struct outcome *there)
{
  const ZydisDecodedInstruction *in = &c->piece.in[there->index];
  uint64_t next = c->address + c->piece.offset[there->index + 1], pushed;
  uint64_t in_arena = there->machine.reg[RSP] - (uint64_t)memory.arena.bytes;
  uint8_t *ra_slot = memory.arena.bytes + in_arena;
  if (there->ending.signal == 0 || in->meta.category != ZYDIS_CATEGORY_CALL || in->raw.imm[0].is_relative ||
      in_arena > ARENA_BYTES - 8) {
    return;
  }
  memcpy(&pushed, ra_slot, 8);
  if (pushed == next) {
    memcpy(ra_slot, memory.first + in_arena, 8);
    there->machine.reg[RSP] += 8;
  }
}

static bool
outcomes_differ(const struct window_case *c, const struct outcome *here, struct outcome *there, char *text, size_t size)
{
  const struct ending *a = &here->ending, *b = &there->ending;
  if (a->signal != b->signal || a->code != b->code || a->address != b->address || a->error != b->error) {
    snprintf(text, size, "ends with signal %d code %d address %#llx error %#llx, not %d %d %#llx %#llx", b->signal,
             b->code, (unsigned long long)b->address, (unsigned long long)b->error, a->signal, a->code,
             (unsigned long long)a->address, (unsigned long long)a->error);
    return true;
  }
  if (a->signal == 0 && here->machine.rip != there->machine.rip) {
    snprintf(text, size, "goes on at %#llx, not %#llx", (unsigned long long)there->machine.rip,
             (unsigned long long)here->machine.rip);
    return true;
  }
  if (a->signal != 0 && here->index != there->index) {
    snprintf(text, size, "faults in instruction %u, not %u", there->index, here->index);
    return true;
  }
  undo_push(c, there);
  return machine_differs(&here->machine, &there->machine, MACHINE_FLAGS, text, size) || memory_differs(text, size);
}

static void
count_it(const struct window_case *c, const struct outcome *here, struct windows_count *count)
{
  count->same++;
  count->faults += here->ending.signal != 0;
  count->branches += (c->piece.traits & PIECE_BRANCH) != 0;
  count->rip_relative += (c->piece.traits & PIECE_RIP) != 0;
  count->calls += (c->piece.traits & (PIECE_CALL | PIECE_INDIRECT_CALL)) != 0;
  count->vex += (c->piece.traits & PIECE_VEX) != 0;
  count->evex += (c->piece.traits & PIECE_EVEX) != 0;
  count->strings += (c->piece.traits & PIECE_STRING) != 0;
}

static void
run_one(struct window_case *c, bool moved, struct machine *begin, struct outcome *out)
{
  struct run run = {.c = c, .moved = moved};
  begin->rip = moved ? (uint64_t)c->place : c->address;
  machine_run(begin, look, &run, &out->machine, &out->ending);
  out->index = run.index;
}

enum case_result
windows_case(uint64_t seed, uint64_t number, struct windows_count *count, char *text, size_t size)
{
  static struct window_case c;
  static struct outcome here, there;
  static struct machine machine;
  struct rng rng = rng_of(seed, number);
  if (!choose(&c, &rng)) {
    count->skipped++;
    return CASE_SKIPPED;
  }
  memset(c.place, 0xcc, PLACE_BYTES);
  struct ct_code out = {.bytes = c.place, .capacity = PLACE_BYTES, .address = (uint64_t)c.place};
  const uint8_t *code = (const uint8_t *)c.address;
  if (ct_window_relocate(code, c.address, &c.window, &out, &c.map) != CT_WINDOW_OK) {
    count->skipped++;
    return CASE_SKIPPED;
  }
  c.moved_bytes = out.length;
  machine_random(&machine, &rng);
  piece_place(&c.piece, &memory.arena, &machine, &rng);
  memory_begin(&memory, c.image, &c.piece, &machine, &rng);
  run_one(&c, false, &machine, &here);
  memory_first_done(&memory);
  run_one(&c, true, &machine, &there);
  if (here.ending.no_step || there.ending.no_step) {
    memory_end(&memory);
    count->skipped++;
    return CASE_SKIPPED;
  }
  bool differs = outcomes_differ(&c, &here, &there, text, size);
  memory_end(&memory);
  if (!differs) {
    count_it(&c, &here, count);
    return CASE_SAME;
  }
  size_t used = strlen(text);
  used += (size_t)snprintf(text + used, size - used, "\n     %s, moved to %p:\n",
                           c.image != NULL ? ct_elf_path(c.image->plan->elf) : "made up", (void *)c.place);
  if (used < size) {
    piece_capture(&c.piece, code, text + used, size - used);
  }
  return CASE_DIFFERS;
}
