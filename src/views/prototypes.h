/* SPDX-License-Identifier: MIT */
/*
 * The prototypes of a trace's functions: those that the C library is known to have (known_calls.h), and those that
 * debug information gave when it was recorded (prototypes.tsv). Each is made when it is first asked for.
 */
#ifndef CT_VIEWS_PROTOTYPES_H
#define CT_VIEWS_PROTOTYPES_H

#include "trace/batch.h"
#include "views/values.h"

struct ct_view_prototypes {
  struct ct_trace *trace;
  struct ct_view_prototype *of; /* of each function; NULL: none was asked for */
  uint32_t count;
  struct ct_view_constants **constants; /* by number, from 1 up; NULL: not asked for */
  uint32_t constants_count;
  struct ct_prototype_code *code; /* functions and data by image and address; NULL: no address was asked for */
  size_t code_count;
  bool has_code;
  char *symbol;   /* the name that was found last, printable */
  uint32_t image; /* of the function whose values are shown: addresses are its */
};

void ct_view_prototypes_init(struct ct_view_prototypes *prototypes, struct ct_trace *trace);
void ct_view_prototypes_destroy(struct ct_view_prototypes *prototypes);
/* What is known of a function; NULL: nothing. Addresses are those of its image from then on. */
const struct ct_prototype *ct_view_prototype(struct ct_view_prototypes *prototypes, uint32_t fn);
/* The function or data at an address, and how far past its begin; NULL: none, or several at different times. Until the
 * next call. */
const char *ct_view_prototypes_symbol(struct ct_view_prototypes *prototypes, uint64_t address, uint64_t *offset);

/* Adds what was recorded of a call or of its return. The stack is copied to `stack`, as much as there is room for. */
void ct_registers_add(struct ct_value_registers *registers, const struct ct_detail *detail, uint8_t *stack,
                      size_t size);
/* Of the program's memory at the time of the call: a text, or the piece of the stack. Gives how many bytes, 0: none. */
size_t ct_registers_memory(const struct ct_value_registers *registers, uint64_t address, void *out, size_t bytes);
/* What an event of kind VALUE says. */
void ct_registers_add_value(struct ct_value_registers *registers, const struct ct_event *value);
const char *ct_value_name(uint32_t which); /* enum ct_value: "argument 1", "xmm0" */

#endif
