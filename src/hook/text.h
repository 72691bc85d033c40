/* SPDX-License-Identifier: MIT */
/* The text of a module in a process: what it is before it is patched, and the patching. See text.c. */
#ifndef CT_HOOK_TEXT_H
#define CT_HOOK_TEXT_H

#include "process/process.h"
#include "ring/layout.h"
#include "target/elf.h"
#include "x86/relocate.h"

struct ct_text {
  uint64_t start; /* in the target */
  uint64_t size;
  const uint8_t *file;
  uint8_t *memory; /* what the process has there; NULL: what the file has */
};

struct ct_texts {
  struct ct_text *items; /* the executable segments */
  size_t count;
};

/* elf must stay open. 0, CT_ENOMEM or CT_EIO; ct_texts_close in either case. */
int ct_texts_open(const struct ct_process *process, const struct ct_elf *elf, uint64_t base, struct ct_texts *texts);
void ct_texts_close(struct ct_texts *texts);

/* The bytes at address as the process has them, or NULL when they are not all in one text. */
const uint8_t *ct_texts_at(const struct ct_texts *texts, uint64_t address, size_t size);
/* The same, but NULL also when the file has others. */
const uint8_t *ct_texts_unchanged(const struct ct_texts *texts, uint64_t address, size_t size);

/* Takes patches that are in place out of what the process is seen to have. */
void ct_texts_without(struct ct_texts *texts, const struct ct_patch *patches, size_t count);

/*
 * Writes patches (or, with back, what was there before), sorted by address, into memory as it is now. which: a byte for
 * each, 0: not this one; NULL: all. Where the bytes are neither the patch's nor the old ones nothing is written;
 * *strange counts that. Pages that cannot be read are passed over. 0, CT_ENOMEM or CT_EIO.
 */
int ct_patches_write(const struct ct_process *process, const struct ct_patch *patches, const uint8_t *which,
                     size_t count, bool back, size_t *strange);
/* Asked now and then: is there no time for more? */
struct ct_enough {
  bool (*is)(void *context);
  void *context;
};
/*
 * Back, as above, until it is enough (NULL: never): what is in place then is whole hooks, or what no entry leads to.
 */
int ct_patches_take_back(const struct ct_process *process, const struct ct_patch *patches, const uint8_t *which,
                         size_t count, const struct ct_enough *enough, size_t *strange);
/* By address. Fast where they come in the order of the functions, but for a few that lie near them. */
void ct_patches_sort(struct ct_patch *patches, size_t count);
/* Writes the guards among them (CT_PATCH_GUARD), each after its relay. 0 or CT_EIO. */
int ct_patches_write_guards(const struct ct_process *process, const struct ct_patch *patches, size_t count);

/*
 * Writes patches, sorted by address. What lies between them is written as it was. *bytes: of the pages that were
 * written to. 0, CT_ERANGE or CT_EIO.
 */
int ct_texts_patch(const struct ct_process *process, const struct ct_texts *texts, const struct ct_patch *patches,
                   size_t count, uint64_t *bytes);

#endif
