/* SPDX-License-Identifier: MIT */
/*
 * See passes.h. The file grows by pieces whose blocks are allocated at once, so that a full disk is an error here and
 * no signal at a later store. All of it is mapped: the kernel writes back and drops what is not used, so what is kept
 * in memory is its choice and not a need.
 */
#include "export/passes.h"

#include "export/out.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

struct ct_passes {
  int fd;
  uint8_t *bits;
  uint64_t bytes, count, at;
};

int
ct_passes_create(struct ct_passes **out, struct ct_diag *diag)
{
  struct ct_passes *passes = calloc(1, sizeof(*passes));
  if (passes == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for a filter");
  }
  int code = ct_out_temporary(&passes->fd, diag);
  if (code != CT_OK) {
    free(passes);
    return code;
  }
  *out = passes;
  return CT_OK;
}

void
ct_passes_destroy(struct ct_passes *passes)
{
  if (passes != NULL) {
    if (passes->bits != NULL) {
      munmap(passes->bits, passes->bytes);
    }
    close(passes->fd);
    free(passes);
  }
}

uint64_t
ct_passes_count(const struct ct_passes *passes)
{
  return passes->count;
}

static int
grow(struct ct_passes *passes)
{
  uint64_t bytes = passes->bytes == 0 ? PIECE_BYTES : 2 * passes->bytes;
  int failed = posix_fallocate(passes->fd, 0, (off_t)bytes);
  if (failed != 0) {
    return ct_err_from_errno(failed);
  }
  void *bits = passes->bits == NULL ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, passes->fd, 0)
                                    : mremap(passes->bits, passes->bytes, bytes, MREMAP_MAYMOVE);
  if (bits == MAP_FAILED) {
    return CT_ENOMEM;
  }
  passes->bits = bits;
  passes->bytes = bytes;
  return CT_OK;
}

int
ct_passes_add(struct ct_passes *passes)
{
  int code = passes->count / 8 == passes->bytes ? grow(passes) : CT_OK;
  passes->count += code == CT_OK;
  return code;
}

void
ct_passes_set(struct ct_passes *passes, uint64_t number)
{
  if (number < passes->count) {
    passes->bits[number / 8] |= (uint8_t)(1u << number % 8);
  }
}

void
ct_passes_rewind(struct ct_passes *passes)
{
  passes->at = 0;
}

bool
ct_passes_next(struct ct_passes *passes)
{
  uint64_t at = passes->at++;
  return at < passes->count && (passes->bits[at / 8] >> at % 8 & 1) != 0;
}
