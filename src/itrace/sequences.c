/* SPDX-License-Identifier: MIT */
/* See sequences.h. */
#include "itrace/sequences.h"

#include <stdlib.h>
#include <string.h>

enum { SEQUENCES_MAX = 4096 };

void
ct_sequences_reset(struct ct_sequences *sequences, ct_sequences_data_fn read_data, uint32_t signature)
{
  sequences->count = 0;
  sequences->read_data = read_data;
  sequences->signature = signature;
  memset(sequences->seen, 0, sizeof(sequences->seen));
}

static bool
is_known(const struct ct_sequences *sequences, uint64_t start)
{
  for (uint32_t i = 0; i < sequences->count; i++) {
    if (sequences->list[i].start == start) {
      return true;
    }
  }
  return false;
}

static bool
has_signature(const struct ct_sequences *sequences, const struct ct_sequence *sequence, void *context)
{
  uint32_t signature;
  return sequences->read_data(context, sequence->abort - sizeof(signature), &signature, sizeof(signature)) &&
         signature == sequences->signature;
}

/* Without memory for it the sequence is none. */
static void
add(struct ct_sequences *sequences, const struct ct_sequence *sequence)
{
  struct ct_sequence *more = reallocarray(sequences->list, sequences->count + 1, sizeof(*more));
  if (more != NULL) {
    sequences->list = more;
    more[sequences->count++] = *sequence;
  }
}

bool
ct_sequences_look(struct ct_sequences *sequences, uint64_t pc, const uint8_t *code, size_t size, void *context)
{
  uint8_t bytes[CT_SEQUENCE_BYTES];
  struct ct_sequence sequence;
  uint32_t first = sequences->count;
  uint64_t address;
  for (size_t at = 0; sequences->read_data != NULL && ct_sequence_find(pc, code, size, &at, &address);) {
    uint64_t *seen = &sequences->seen[(address / CT_SEQUENCE_BYTES) % CT_SEQUENCES_SEEN];
    if (*seen == address) {
      continue;
    }
    *seen = address;
    if (sequences->read_data(context, address, bytes, sizeof(bytes)) && ct_sequence_of(bytes, &sequence) &&
        !is_known(sequences, sequence.start) && sequences->count < SEQUENCES_MAX &&
        has_signature(sequences, &sequence, context)) {
      add(sequences, &sequence);
    }
  }
  return first < sequences->count;
}

const struct ct_sequence *
ct_sequences_around(const struct ct_sequences *sequences, uint64_t pc)
{
  for (uint32_t i = 0; i < sequences->count; i++) {
    if (pc >= sequences->list[i].start && pc < sequences->list[i].end) {
      return &sequences->list[i];
    }
  }
  return NULL;
}
