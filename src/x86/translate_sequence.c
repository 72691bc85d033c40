/* SPDX-License-Identifier: MIT */
/*
 * Restartable sequences (rseq): instructions that the kernel has begin again, at abort, when it interrupts them. It
 * knows them by their addresses, so a copy of them is none to it, but if the copy has a descriptor of its own:
 *
 * - head: the program's r10 and r11 into their registers (with records: the record's place into a slot); the address of
 *   our descriptor into the thread's struct rseq, in place of the program's.
 * - begin: the instructions, as they are. Nothing is borrowed in between, so the state is the program's wherever it is
 *   interrupted.
 * - end: ways out, each: no descriptor, r10 and r11 back to their slots, to the next unit or to the tracer.
 * - The signature; what the kernel goes on with: the way out to the program's abort.
 * - Our descriptor.
 *
 * A thread that has stopped in between is at abort, as it would be natively. What is executed there is not recorded:
 * how far it came nobody knows. So the tracer notes a gap and the whole state (CT_EXIT_SEQUENCE).
 */
#include "x86/translate_internal.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

enum { DESCRIPTOR_BYTES = CT_SEQUENCE_BYTES, DESCRIPTOR_AT = 8 /* in struct rseq */, WAYS_MAX = CT_UNIT_EXITS_MAX };

struct way {
  uint64_t target;
  uint32_t fields[CT_UNIT_INSNS_MAX]; /* rel32 that lead there */
  uint32_t count;
};

struct sequence {
  struct ct_source_insn insns[CT_UNIT_INSNS_MAX];
  uint32_t at[CT_UNIT_INSNS_MAX]; /* of each in the unit */
  uint32_t count;
  struct way ways[WAYS_MAX];
  uint32_t way_count;
};

bool
ct_sequence_of(const uint8_t bytes[CT_SEQUENCE_BYTES], struct ct_sequence *sequence)
{
  struct {
    uint32_t version, flags;
    uint64_t start, size, abort;
  } descriptor;
  static_assert(sizeof(descriptor) == CT_SEQUENCE_BYTES, "as the kernel has it");
  memcpy(&descriptor, bytes, sizeof(descriptor));
  *sequence = (struct ct_sequence){descriptor.start, descriptor.start + descriptor.size, descriptor.abort};
  return descriptor.version == 0 && descriptor.flags < 8 && descriptor.start != 0 && descriptor.size != 0 &&
         descriptor.size <= CT_STRETCH_SOURCE_MAX && descriptor.start >> 47 == 0 && descriptor.abort >> 47 == 0 &&
         descriptor.abort > sizeof(uint32_t) && descriptor.abort - descriptor.start >= descriptor.size;
}

/* lea DISTANCE(%rip), REG; or the address itself: mov $ADDRESS, REG or memory. Descriptors are aligned to their size.
 */
bool
ct_sequence_find(uint64_t pc, const uint8_t *code, size_t size, size_t *at, uint64_t *descriptor)
{
  for (size_t i = *at; i + 6 <= size; i++) {
    int32_t word;
    bool is_lea = code[i] == 0x8d && (code[i + 1] & 0xc7) == 5, is_mov = (code[i] & 0xf8) == 0xb8;
    memcpy(&word, code + i + (is_lea ? 2 : 1), sizeof(word));
    uint64_t address = is_lea ? pc + i + 6 + (uint64_t)(int64_t)word : (uint32_t)word;
    if (code[i] == 0xc7) { /* the last four bytes, after a displacement of none, one or four */
      size_t displacement = (code[i + 1] >> 6) == 0 ? 0 : (code[i + 1] >> 6) == 1 ? 1 : 4;
      size_t word_at = i + 2 + ((code[i + 1] & 7) == 4) + displacement;
      if ((code[i + 1] & 0xc7) == 4 && word_at + 8 <= size && (code[i + 2] & 7) == 5) { /* %fs:8 and the like */
        word_at += 4;
      }
      is_mov = word_at + sizeof(word) <= size;
      memcpy(&word, code + (is_mov ? word_at : 0), sizeof(word));
      address = (uint32_t)word;
    }
    if ((is_lea || is_mov) && address >= 65536 && address % CT_SEQUENCE_BYTES == 0) {
      *at = i + 1;
      *descriptor = address;
      return true;
    }
  }
  return false;
}

const struct ct_sequence *
ct_sequence_at(const struct ct_translation_place *place, uint64_t pc)
{
  for (uint32_t i = 0; i < place->sequence_count; i++) {
    if (place->sequences[i].start == pc) {
      return &place->sequences[i];
    }
  }
  return NULL;
}

static bool
is_inside(const struct ct_sequence *of, uint64_t pc)
{
  return pc >= of->start && pc < of->end;
}

/* False: there are more than there may be. */
static bool
add_way(struct sequence *s, uint64_t target)
{
  for (uint32_t i = 0; i < s->way_count; i++) {
    if (s->ways[i].target == target) {
      return true;
    }
  }
  if (s->way_count == WAYS_MAX) {
    return false;
  }
  s->ways[s->way_count++] = (struct way){.target = target};
  return true;
}

static bool
is_begin_of(const struct sequence *s, uint64_t pc)
{
  for (uint32_t i = 0; i < s->count; i++) {
    if (s->insns[i].pc == pc) {
      return true;
    }
  }
  return false;
}

/* False: it has something in it that no copy of ours can have. */
static bool
read_sequence(const struct ct_sequence *of, const uint8_t *code, size_t size, struct sequence *s)
{
  uint64_t at = 0, bytes = of->end - of->start;
  s->count = s->way_count = 0;
  while (at < bytes) {
    struct ct_source_insn *insn = &s->insns[s->count];
    if (s->count == CT_UNIT_INSNS_MAX || at >= size || !ct_source_decode(of->start + at, code + at, size - at, insn)) {
      return false;
    }
    bool branches = insn->flow == CT_SOURCE_BRANCH || insn->flow == CT_SOURCE_JUMP;
    if (insn->flow != CT_SOURCE_NEXT && !branches) {
      return false;
    }
    if (branches && !is_inside(of, insn->target) && !add_way(s, insn->target)) {
      return false;
    }
    s->count++;
    at += insn->length;
  }
  for (uint32_t i = 0; i < s->count; i++) {
    const struct ct_source_insn *insn = &s->insns[i];
    if (insn->flow != CT_SOURCE_NEXT && is_inside(of, insn->target) && !is_begin_of(s, insn->target)) {
      return false;
    }
  }
  return at == bytes && add_way(s, of->end) && add_way(s, of->abort);
}

/* rax becomes the thread's pointer to a descriptor. */
static void
emit_set(struct ct_writer *w)
{
  ct_emit_movabs_store_rax(w->out, w->place->rseq + DESCRIPTOR_AT);
}

static void
borrow_rax(struct ct_writer *w, uint64_t pc)
{
  ct_emit_mov_store(w->out, CT_SLOT(w->place, spill), CT_RAX);
  w->now.borrowed = CT_RAX;
  ct_writer_note(w, pc);
}

static void
return_rax(struct ct_writer *w, uint64_t pc)
{
  ct_emit_mov_load(w->out, CT_RAX, CT_SLOT(w->place, spill));
  w->now.borrowed = CT_NO_REG;
  ct_writer_note(w, pc);
}

/* Where the descriptor's address belongs. */
static uint32_t
emit_head(struct ct_writer *w, const struct ct_sequence *of)
{
  ct_writer_note(w, of->start);
  if (w->place->records) {
    ct_emit_mov_store(w->out, CT_SLOT(w->place, spill_place), CT_R11);
    ct_emit_mov_load(w->out, CT_R10, CT_SLOT(w->place, app_r10));
    ct_emit_mov_load(w->out, CT_R11, CT_SLOT(w->place, app_r11));
    w->now.r10_is_slot = w->now.r11_is_slot = 0;
    w->now.place_is_slot = 1;
    ct_writer_note(w, of->start);
  }
  borrow_rax(w, of->start);
  ct_emit_movabs(w->out, CT_RAX, UINT64_MAX); /* eight bytes of it */
  uint32_t field = ct_writer_here(w) - (uint32_t)sizeof(uint64_t);
  emit_set(w);
  w->now.is_sequence = 1;
  return_rax(w, of->abort);
  return field;
}

static void
emit_copy(struct ct_writer *w, const struct ct_source_insn *insn)
{
  struct ct_code *out = w->out;
  if (!insn->is_rip) {
    ct_emit_bytes(out, insn->code, insn->length);
  } else if (!ct_writer_reaches(w, insn->address)) { /* lea */
    ct_emit_movabs(out, (enum ct_reg)((insn->code[insn->modrm_at] >> 3 & 7) | (insn->rex & 4) << 1), insn->address);
  } else {
    ct_writer_copy_near(w, insn);
  }
}

static void
emit_insn(struct ct_writer *w, const struct ct_sequence *of, struct sequence *s, const struct ct_source_insn *insn)
{
  if (insn->flow == CT_SOURCE_NEXT) {
    emit_copy(w, insn);
    return;
  }
  struct ct_code_label later = {.count = 0}; /* where it leads is filled in by set_distance */
  if (insn->flow == CT_SOURCE_JUMP) {
    ct_emit_jmp_label(w->out, &later);
  } else {
    ct_emit_jcc_label(w->out, (enum ct_cond)insn->cond, &later);
  }
  if (!is_inside(of, insn->target)) {
    for (uint32_t i = 0; i < s->way_count; i++) {
      if (s->ways[i].target == insn->target) {
        s->ways[i].fields[s->ways[i].count++] = ct_writer_here(w) - 4;
      }
    }
  }
}

static void
set_bytes(const struct ct_writer *w, uint32_t at, const void *bytes, size_t size)
{
  if (!w->out->overflow) {
    memcpy(w->out->bytes + w->start + at, bytes, size);
  }
}

static void
set_distance(const struct ct_writer *w, uint32_t field, uint32_t to)
{
  int32_t distance = (int32_t)(to - (field + 4));
  set_bytes(w, field, &distance, sizeof(distance));
}

static void
link_inside(const struct ct_writer *w, const struct ct_sequence *of, const struct sequence *s, uint32_t end)
{
  for (uint32_t i = 0; i < s->count; i++) {
    for (uint32_t k = 0; k < s->count && s->insns[i].flow != CT_SOURCE_NEXT && is_inside(of, s->insns[i].target); k++) {
      if (s->insns[k].pc == s->insns[i].target) {
        uint32_t after = i + 1 < s->count ? s->at[i + 1] : end;
        set_distance(w, after - 4, s->at[k]);
      }
    }
  }
}

/* In the state that the instructions have left. What has no descriptor any more may be forgotten. */
static void
emit_way(struct ct_writer *w, const struct way *way, const struct ct_recovery *state)
{
  for (uint32_t i = 0; i < way->count; i++) {
    set_distance(w, way->fields[i], ct_writer_here(w));
  }
  w->now = *state;
  ct_writer_note(w, way->target);
  borrow_rax(w, way->target);
  ct_emit_mov32_imm(w->out, CT_RAX, 0);
  emit_set(w);
  return_rax(w, way->target);
  if (w->place->records) {
    ct_emit_mov_store(w->out, CT_SLOT(w->place, app_r10), CT_R10);
    ct_emit_mov_store(w->out, CT_SLOT(w->place, app_r11), CT_R11);
    ct_emit_mov_load(w->out, CT_R11, CT_SLOT(w->place, spill_place));
    w->now.r10_is_slot = w->now.r11_is_slot = 1;
    w->now.place_is_slot = 0;
  }
  ct_writer_note(w, way->target);
  ct_translate_leave(w, way->target, w->place->records ? CT_EXIT_SEQUENCE : CT_EXIT_LINK);
}

static void
emit_descriptor(const struct ct_writer *w, uint64_t begin, uint64_t end, uint64_t aborts)
{
  ct_emit_u64(w->out, 0); /* version, flags */
  ct_emit_u64(w->out, begin);
  ct_emit_u64(w->out, end - begin);
  ct_emit_u64(w->out, aborts);
}

bool
ct_sequence_emit(struct ct_writer *w, const struct ct_sequence *of, const uint8_t *code, size_t size)
{
  struct sequence s;
  uint64_t aborts = 0;
  if (!read_sequence(of, code, size, &s)) {
    return false;
  }
  for (uint32_t i = 0; i < s.count; i++) {
    if (s.insns[i].is_rip && !ct_writer_reaches(w, s.insns[i].address) && !s.insns[i].is_lea_wide) {
      return false;
    }
  }
  uint64_t unit_at = ct_code_pc(w->out);
  uint32_t field = emit_head(w, of), begin = ct_writer_here(w);
  struct ct_recovery state = w->now;
  for (uint32_t i = 0; i < s.count; i++) {
    s.at[i] = ct_writer_here(w);
    emit_insn(w, of, &s, &s.insns[i]);
  }
  uint32_t end = ct_writer_here(w);
  link_inside(w, of, &s, end);
  for (uint32_t i = 0; i < s.way_count; i++) { /* first the one that follows */
    if (s.ways[i].target == of->end) {
      emit_way(w, &s.ways[i], &state);
    }
  }
  for (uint32_t i = 0; i < s.way_count; i++) {
    if (s.ways[i].target == of->abort) {
      ct_emit_u32(w->out, w->place->rseq_signature);
      aborts = ct_code_pc(w->out);
    }
    if (s.ways[i].target != of->end) {
      emit_way(w, &s.ways[i], &state);
    }
  }
  while (ct_code_pc(w->out) % DESCRIPTOR_BYTES != 0 && !w->out->overflow) {
    ct_emit_int3(w->out);
  }
  uint64_t descriptor = ct_code_pc(w->out);
  emit_descriptor(w, unit_at + begin, unit_at + end, aborts);
  set_bytes(w, field, &descriptor, sizeof(descriptor));
  return true;
}
