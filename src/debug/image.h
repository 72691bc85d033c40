/* SPDX-License-Identifier: MIT */
/*
 * What a process had mapped, by the lines of its /proc/PID/maps that are in the trace: the program, its libraries with
 * what a debugger has to know of them, and memory that nobody could write, by the files as they are now.
 */
#ifndef CT_DEBUG_IMAGE_H
#define CT_DEBUG_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct ct_image_mapping {
  uint64_t start, end, offset;
  bool writable;
  size_t file; /* SIZE_MAX: none */
};

struct ct_image_file {
  char *path;
  int fd;                                                       /* -1: cannot be opened */
  bool is_elf;                                                  /* and the rest is known */
  uint64_t base;                                                /* address of its first byte */
  uint64_t bias;                                                /* to be added to an address of the file */
  uint64_t entry, headers, header_count, header_bytes, dynamic; /* in the process; dynamic 0: none */
  uint64_t relocated_start, relocated_end; /* the loader has written there, and then made it read-only */
};

struct ct_debug_image {
  struct ct_image_mapping *mappings;
  size_t mapping_count;
  struct ct_image_file *files;
  size_t file_count;
};

/* 0 or CT_ENOMEM; to be freed in any case. */
int ct_image_read(const char *maps, struct ct_debug_image *image);
void ct_image_free(struct ct_debug_image *image);
/* The program; NULL: not known. */
const struct ct_image_file *ct_image_program(const struct ct_debug_image *image);
/* Is some of it code or constants? */
bool ct_image_has(const struct ct_debug_image *image, uint64_t address, uint64_t bytes);
/* Up to size bytes of code and constants, as the files have them; how many. */
size_t ct_image_memory(const struct ct_debug_image *image, uint64_t address, uint8_t *bytes, size_t size);
/* Documents of gdb's protocol: library-list-svr4, and the auxiliary vector as far as it is known. */
void ct_image_libraries(const struct ct_debug_image *image, FILE *out);
void ct_image_auxv(const struct ct_debug_image *image, FILE *out);

#endif
