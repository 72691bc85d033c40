/* SPDX-License-Identifier: MIT */
/*
 * The units that records are of, by their ids: 1, 2, 3 and so on. They outlive their translations: a thread's records
 * are read with this.
 */
#ifndef CT_ITRACE_UNIT_LOG_H
#define CT_ITRACE_UNIT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_steps_joint;
struct ct_unit;
struct ct_unit_log;
struct ct_unit_sizes;

struct ct_logged_unit {
  uint64_t pc;
  const uint8_t *code; /* of the log, as are the joints, up to the next ct_unit_log_add */
  const struct ct_steps_joint *joints;
  uint16_t code_bytes;
  uint16_t record_bytes; /* with the id */
  uint8_t insns;         /* that its record has */
  uint8_t joint_count;
  uint8_t part, parts; /* it is that part of a unit, of so many, whose ids follow each other; 0 is the whole unit */
  bool is_passed;      /* it is left where the branch at its end is not taken; else, where it is */
  bool is_guessed;     /* ... where the indirect branch at its end goes elsewhere than was guessed */
};

/* NULL: out of memory. */
struct ct_unit_log *ct_unit_log_create(void);
void ct_unit_log_free(struct ct_unit_log *log);
/* The id that the next unit gets. */
uint32_t ct_unit_log_next(const struct ct_unit_log *log);
/* Adds it. False: out of memory. */
bool ct_unit_log_add(struct ct_unit_log *log, const struct ct_logged_unit *unit);
/* Likewise the unit that has just been translated, all of its parts. */
bool ct_unit_log_add_parts(struct ct_unit_log *log, const struct ct_unit *unit);
/* False: there is none of that id. */
bool ct_unit_log_get(const struct ct_unit_log *log, uint32_t id, struct ct_logged_unit *unit);
/* The address after the first code_at bytes of its code, which end with an instruction. */
uint64_t ct_unit_log_pc(const struct ct_logged_unit *unit, uint32_t code_at);

/* Says how long the record of that unit is, which there is. */
void ct_unit_log_size(const struct ct_unit_log *log, uint32_t id, struct ct_unit_sizes *sizes);
/* Units from `first` on, as a block of kind CT_STEPS_UNITS has them: its bytes (the caller's), or NULL. */
uint8_t *ct_unit_log_block(const struct ct_unit_log *log, uint32_t first, size_t *size);

#endif
