/* SPDX-License-Identifier: MIT */
/* See unit_log.h. The log is the bytes of the units' blocks, and where each begins. */
#include "itrace/unit_log.h"

#include "ring/itrace_stream.h"
#include "steps/sizes.h"
#include "x86/translate.h"

#include <stdlib.h>
#include <string.h>

struct ct_unit_log {
  uint8_t *bytes;
  size_t size, capacity;
  struct place {
    size_t at;
    uint16_t record_bytes;
    uint8_t part, parts;
    bool is_passed, is_guessed;
  } *places; /* of unit id: places[id - 1] */
  size_t count, place_capacity;
};

struct ct_unit_log *
ct_unit_log_create(void)
{
  return calloc(1, sizeof(struct ct_unit_log));
}

void
ct_unit_log_free(struct ct_unit_log *log)
{
  if (log != NULL) {
    free(log->bytes);
    free(log->places);
    free(log);
  }
}

uint32_t
ct_unit_log_next(const struct ct_unit_log *log)
{
  return (uint32_t)log->count + 1;
}

bool
ct_unit_log_add(struct ct_unit_log *log, const struct ct_logged_unit *unit)
{
  struct ct_steps_unit head = {.pc = unit->pc,
                               .id = ct_unit_log_next(log),
                               .code_bytes = unit->code_bytes,
                               .insns = unit->insns,
                               .joints = unit->joint_count};
  size_t joint_bytes = unit->joint_count * sizeof(*unit->joints), more = sizeof(head) + ct_steps_unit_rest(&head);
  if (head.id >= CT_STREAM_EVENT) {
    return false;
  }
  if (log->size + more > log->capacity) {
    size_t capacity = (log->size + more) * 2;
    uint8_t *grown = realloc(log->bytes, capacity);
    if (grown == NULL) {
      return false;
    }
    log->bytes = grown;
    log->capacity = capacity;
  }
  if (log->count == log->place_capacity) {
    size_t capacity = log->count * 2 + 1024;
    struct place *grown = reallocarray(log->places, capacity, sizeof(*grown));
    if (grown == NULL) {
      return false;
    }
    log->places = grown;
    log->place_capacity = capacity;
  }
  log->places[log->count++] =
      (struct place){log->size, unit->record_bytes, unit->part, unit->parts, unit->is_passed, unit->is_guessed};
  uint8_t *to = log->bytes + log->size;
  memcpy(to, &head, sizeof(head));
  if (joint_bytes != 0) {
    memcpy(to + sizeof(head), unit->joints, joint_bytes);
  }
  memcpy(to + sizeof(head) + joint_bytes, unit->code, unit->code_bytes);
  log->size += more;
  return true;
}

bool
ct_unit_log_add_parts(struct ct_unit_log *log, const struct ct_unit *unit)
{
  bool good = true;
  for (uint32_t i = 0; i < unit->part_count && good; i++) {
    const struct ct_unit_part *part = &unit->parts[i];
    struct ct_steps_joint joints[CT_UNIT_STRETCHES_MAX];
    uint8_t code[CT_UNIT_SOURCE_MAX];
    uint32_t size = 0;
    for (uint32_t k = 0; k < part->stretches; k++) {
      uint32_t bytes = k + 1u < part->stretches ? unit->stretches[k].bytes : part->last_bytes;
      joints[k] = (struct ct_steps_joint){.pc = unit->stretches[k].pc, .at = (uint16_t)size};
      memcpy(code + size, unit->stretches[k].code, bytes);
      size += bytes;
    }
    struct ct_logged_unit logged = {.pc = unit->pc,
                                    .code = code,
                                    .joints = joints + 1,
                                    .code_bytes = (uint16_t)size,
                                    .record_bytes = part->record_bytes,
                                    .insns = part->insns,
                                    .joint_count = (uint8_t)(part->stretches - 1),
                                    .part = (uint8_t)i,
                                    .parts = (uint8_t)unit->part_count,
                                    .is_passed = part->is_passed,
                                    .is_guessed = part->is_guessed};
    good = ct_unit_log_add(log, &logged);
  }
  return good;
}

bool
ct_unit_log_get(const struct ct_unit_log *log, uint32_t id, struct ct_logged_unit *unit)
{
  struct ct_steps_unit head;
  if (id == 0 || id > log->count) {
    return false;
  }
  const uint8_t *at = log->bytes + log->places[id - 1].at;
  memcpy(&head, at, sizeof(head));
  *unit = (struct ct_logged_unit){.pc = head.pc,
                                  .code = at + sizeof(head) + head.joints * sizeof(*unit->joints),
                                  .joints = (const struct ct_steps_joint *)(at + sizeof(head)),
                                  .code_bytes = head.code_bytes,
                                  .record_bytes = log->places[id - 1].record_bytes,
                                  .insns = head.insns,
                                  .joint_count = head.joints,
                                  .part = log->places[id - 1].part,
                                  .parts = log->places[id - 1].parts,
                                  .is_passed = log->places[id - 1].is_passed,
                                  .is_guessed = log->places[id - 1].is_guessed};
  return true;
}

uint64_t
ct_unit_log_pc(const struct ct_logged_unit *unit, uint32_t code_at)
{
  uint64_t pc = unit->pc + code_at;
  for (unsigned i = 0; i < unit->joint_count && unit->joints[i].at < code_at; i++) {
    pc = unit->joints[i].pc + (code_at - unit->joints[i].at);
  }
  return pc;
}

void
ct_unit_log_size(const struct ct_unit_log *log, uint32_t id, struct ct_unit_sizes *sizes)
{
  struct ct_steps_unit head;
  memcpy(&head, log->bytes + log->places[id - 1].at, sizeof(head));
  ct_unit_sizes_add(sizes, id, log->places[id - 1].record_bytes, head.insns);
}

uint8_t *
ct_unit_log_block(const struct ct_unit_log *log, uint32_t first, size_t *size)
{
  size_t start = first <= log->count ? log->places[first - 1].at : log->size;
  uint8_t *bytes = malloc(log->size - start + 1);
  *size = log->size - start;
  if (bytes != NULL && *size != 0) {
    memcpy(bytes, log->bytes + start, *size);
  }
  return bytes;
}
