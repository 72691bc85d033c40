/* SPDX-License-Identifier: MIT */
/*
 * Names for the addresses of a thread's steps: modules by the lines of /proc/PID/maps that are in the file, functions
 * and lines by the modules' files as they are now (they may have been changed since; nothing in the trace says).
 */
#ifndef CT_STEPS_NAMES_H
#define CT_STEPS_NAMES_H

#include "steps/reader.h"

struct ct_steps_names;

/* NULL: out of memory. The reader must outlive it; NULL: none, and no module is known. */
struct ct_steps_names *ct_steps_names_create(struct ct_steps_reader *reader);
/* From that step on the modules are those of this text, the lines of a /proc/PID/maps. 0 or CT_ENOMEM. */
int ct_steps_names_add(struct ct_steps_names *names, const struct ct_steps_modules *modules);
void ct_steps_names_free(struct ct_steps_names *names); /* accepts NULL */

/* What an address belongs to. Texts live as long as the names, but for function's, which is a copy. */
struct ct_steps_name {
  const char *module;   /* its path, or what /proc/PID/maps calls it; NULL: not known, then all is 0 */
  uint64_t offset;      /* of the address: from where the function begins; without one, in the module's file */
  uint64_t begin, end;  /* of the function, addresses; 0: none is known */
  uint64_t base;        /* what is to be taken from an address to have that in the file; 0: not known */
  const char *raw;      /* the function's name in the file's symbols; NULL: none */
  const char *build_id; /* of the file; "" */
  char function[512];   /* readable; "": not known */
};
void ct_steps_names_of(struct ct_steps_names *names, uint64_t step, uint64_t address, struct ct_steps_name *name);
/* A number for the map of modules that holds at the step: names that differ for one address have different ones. */
size_t ct_steps_names_period(struct ct_steps_names *names, uint64_t step);

/* "function+0x12", "module+0x1234", or the address. */
void ct_steps_names_label(struct ct_steps_names *names, uint64_t step, uint64_t address, char *text, size_t size);
/* The line that an address belongs to; NULL: not known. The first question about a module reads its lines. */
const char *ct_steps_names_source(struct ct_steps_names *names, uint64_t step, uint64_t address, uint32_t *line);

/* Addresses from start up to before end. */
struct ct_steps_range {
  uint64_t start, end;
};
/*
 * Those of all functions that the pattern matches, which is one of record --trace (<contrail/select.h>); of those
 * modules only that are in the maps from `first` on, by their order. Where one is an IFUNC's, also of the functions
 * that its resolver may choose. 0, CT_ENOMEM, CT_EINVAL. *ranges: to be freed.
 */
int ct_steps_names_find(struct ct_steps_names *names, const char *pattern, size_t first, struct ct_steps_range **ranges,
                        size_t *count, struct ct_diag *diag);

#endif
