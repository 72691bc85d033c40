/* SPDX-License-Identifier: MIT */
/* What texts (values.c) and JSON (values_json.c) of values share. */
#ifndef CT_VIEWS_VALUES_INTERNAL_H
#define CT_VIEWS_VALUES_INTERNAL_H

#include "base/known_calls.h"
#include "views/values.h"

/* The bits of a value, lowest first. */
struct value_bits {
  uint64_t words[2];
  uint32_t count; /* of words */
};

bool values_bits_of(const struct ct_value_registers *registers, const struct ct_type *type,
                    const struct ct_place *place, bool is_result, struct value_bits *bits);
uint64_t values_low_bits(uint64_t value, uint32_t bytes);
int64_t values_signed_bits(uint64_t value, uint32_t bytes);
void values_put_value(struct ct_value_text *out, const struct ct_type *type, const struct value_bits *bits,
                      const struct ct_value_context *context);
void values_put_quoted(struct ct_value_text *out, const void *bytes, size_t length, bool goes_on);
bool values_is_absent(const struct ct_prototype *prototype, const struct ct_parameter *parameter,
                      const struct ct_value_registers *registers);
bool values_is_failure(const struct ct_type *type, const struct value_bits *bits);
const struct ct_parameter *values_filled_parameter(const struct ct_prototype *prototype,
                                                   const struct ct_value_registers *registers, uint32_t i);
bool values_gives_value(const struct ct_parameter *parameter);
size_t values_filled_length(const struct ct_parameter *parameter, const struct ct_value_registers *registers,
                            uint32_t i, bool *goes_on);
bool values_member_bits(const struct ct_known_struct *known, const struct ct_known_member *member, uint32_t which,
                        const struct ct_value_registers *registers, uint32_t i, struct value_bits *bits);

#endif
