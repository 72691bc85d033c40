/* SPDX-License-Identifier: MIT */
/* See effects.h. Runs by single steps (machine.h), which keep all of the processor's state. */
#include "effects.h"
#include "machine.h"
#include "trials.h"

#include <stdio.h>

static struct machine begin, end;
static uint8_t memory[DATA_BYTES];

/* Nothing comes by here: the run ends with the instruction's own step. */
static const char exit_bytes[16];

int
effects_set_up(void)
{
  return machine_set_up() != 0 || trials_set_up(exit_bytes, exit_bytes) != 0 ? -1 : 0;
}

static bool
look(void *context, const uint64_t reg[16], uint64_t rip)
{
  return false;
}

static bool
is_zero(const uint8_t *bytes, unsigned count)
{
  for (unsigned i = 0; i < count; i++) {
    if (bytes[i] != 0) {
      return false;
    }
  }
  return true;
}

/* What becomes of the part of a vector register that begins at byte `at`. */
static const char *
compare_part(const struct ct_effects *e, unsigned n, unsigned part)
{
  const uint8_t *before = machine_vector(&begin, n, part), *after = machine_vector(&end, n, part);
  bool written = (e->vectors_written >> n & 1) != 0, beyond = 16 * part >= e->vector_size;
  if (written && !beyond) {
    return NULL;
  }
  if (written && (e->traits & CT_EFFECT_VECTOR_ZEROES) != 0) {
    return is_zero(after, 16) ? NULL : "the rest is not zero in vector register";
  }
  return memcmp(before, after, 16) == 0 ? NULL : "not said to write vector register";
}

static const char *
compare_vectors(const struct ct_effects *e, unsigned *which)
{
  for (unsigned n = 0; n < machine_vector_count(); n++) {
    for (unsigned part = 0; part < machine_vector_parts(); part++) {
      const char *why = compare_part(e, n, part);
      if (why != NULL) {
        *which = n;
        return why;
      }
    }
  }
  for (unsigned k = 0; machine_mask(&begin, 0) != NULL && k < 8; k++) {
    if ((e->masks_written >> k & 1) == 0 && memcmp(machine_mask(&begin, k), machine_mask(&end, k), 8) != 0) {
      *which = k;
      return "not said to write mask register";
    }
  }
  return NULL;
}

static const char *
compare_rest(const struct ct_effects *e, unsigned *which)
{
  enum { CONTROL = 24, ST = 32, XMM = 160 };
  for (unsigned r = 0; r < 16; r++) {
    if ((e->writes >> r & 1) == 0 && begin.reg[r] != end.reg[r]) {
      *which = r;
      return "not said to write register";
    }
  }
  *which = 0;
  uint64_t written = e->flags_written | ((e->traits & CT_EFFECT_WRITES_DF) != 0 ? CT_FLAG_DF : 0);
  if (((begin.flags ^ end.flags) & COMPARED & ~written) != 0) {
    return "not said to write flags";
  }
  bool x87 = memcmp(begin.extended, end.extended, CONTROL) != 0 ||
             memcmp(begin.extended + ST, end.extended + ST, XMM - ST) != 0;
  if (x87 && (e->traits & CT_EFFECT_X87) == 0) {
    return "not said to use x87";
  }
  return NULL;
}

static const char *
compare_memory(const struct trial *t)
{
  struct ct_mem_store stores[2];
  unsigned count = ct_mem_stores(&t->effects, &t->cpu, stores);
  for (unsigned i = 0; i < count; i++) {
    uint64_t at = stores[i].address - (uint64_t)trials.data, bytes = stores[i].size * stores[i].count;
    if (stores[i].size == 0) {
      return NULL; /* a scatter */
    }
    memcpy(memory + at, trials.data + at, bytes);
  }
  return memcmp(memory, trials.data, DATA_BYTES) == 0 ? NULL : "memory is written that no access names";
}

static void
begin_with(struct rng *rng, const struct trial *t)
{
  bool gathers = t->effects.access_count != 0 && (t->effects.access[0].how & CT_ACCESS_VECTOR) != 0;
  machine_random(&begin, rng);
  memcpy(begin.reg, t->cpu.reg, sizeof(begin.reg));
  begin.flags = t->cpu.flags & COMPARED;
  begin.rip = t->cpu.rip;
  for (unsigned n = 0; gathers && n < machine_vector_count(); n++) {
    for (unsigned part = 0; part < machine_vector_parts(); part++) {
      if ((n & 1) == 0 || t->effects.vectors_written == 0) {
        memset(machine_vector(&begin, n, part), 0, 16);
      }
    }
  }
}

bool
effects_case(uint64_t seed, uint64_t number, struct effects_count *count, char *text, size_t size)
{
  struct rng rng = rng_of(seed, number);
  struct trial t;
  struct ending ending;
  char line[128];
  unsigned which = 0, tries = 0;
  trial_begin(&rng, &t);
  while (!trial_make_vector(&rng, &t) || t.effects.flow != CT_INSN_FLOW_NEXT) {
    if (++tries == 10000) {
      snprintf(text, size, "no instruction can be made\n");
      return true;
    }
  }
  begin_with(&rng, &t);
  memcpy((void *)t.cpu.rip, t.code, t.effects.length);
  memcpy(memory, trials.data, DATA_BYTES);
  machine_run(&begin, look, NULL, &end, &ending);
  if (ending.signal != 0) {
    count->faults++;
    return false;
  }
  const char *why = compare_vectors(&t.effects, &which);
  why = why != NULL ? why : compare_rest(&t.effects, &which);
  why = why != NULL ? why : compare_memory(&t);
  if (why != NULL) {
    snprintf(line, sizeof(line), "%s %u", why, which);
    trial_describe(&t, &t.cpu, line, text, size);
    return true;
  }
  count->same++;
  count->vex += (t.effects.traits & CT_EFFECT_VECTOR_ZEROES) != 0;
  count->masked += t.effects.masks_read != 0;
  return false;
}
