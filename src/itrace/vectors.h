/* SPDX-License-Identifier: MIT */
/* The vector and mask registers of a stopped thread, out of the kernel's picture of its extended state. */
#ifndef CT_ITRACE_VECTORS_H
#define CT_ITRACE_VECTORS_H

#include "ring/itrace_stream.h"

#include <stdbool.h>
#include <sys/types.h>

enum { CT_VECTORS_BYTES_MAX = 16384 }; /* of that picture, with AMX */

/* What the kernel has enabled of extended state: the low half of XCR0; 0: the processor does not tell. */
uint32_t ct_vectors_parts(void);
/* False: it cannot be had. */
bool ct_vectors_read(pid_t tid, uint8_t state[CT_VECTORS_BYTES_MAX]);
/* The low `size` bytes of a register. */
void ct_vectors_get(const uint8_t *state, bool is_mask, unsigned reg, uint8_t *to, unsigned size);
/* All registers that the processor has, as they follow a context; fills in which. How many bytes. */
uint32_t ct_vectors_put(const uint8_t *state, struct ct_stream_context *context, uint8_t *to);

#endif
