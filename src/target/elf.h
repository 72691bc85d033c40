/* SPDX-License-Identifier: MIT */
/*
 * One ELF file of the target, read-only: an x86-64 program or shared object, with what belongs to it (its separate
 * debug file, its mini debug info). All addresses are the file's own (ELF vaddr), never those of a process.
 *
 * Rules: nothing the file says is believed; every offset is checked against the mapping. A file whose headers are
 * unusable is refused with one line; damage further inside costs only what it hits. All pointers given out live until
 * ct_elf_close. After ct_elf_open returned and ct_elf_functions was called once, a ct_elf may be read by several
 * threads. The file must not be truncated while it is open (as with any mapping).
 */
#ifndef CT_TARGET_ELF_H
#define CT_TARGET_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct ct_elf;

/* Where a function is known from; bits of ct_function.sources and ct_elf_options.sources. */
enum ct_source {
  CT_SRC_SYMTAB = 1 << 0,
  CT_SRC_DYNSYM = 1 << 1,
  CT_SRC_DEBUGFILE = 1 << 2, /* .symtab of the separate debug file */
  CT_SRC_MINIDEBUG = 1 << 3, /* .gnu_debugdata */
  CT_SRC_DWARF = 1 << 4,     /* only read when there is no .symtab in the file or its debug file */
  CT_SRC_EHFRAME = 1 << 5,
  CT_SRC_GO = 1 << 6, /* .gopclntab; only read when there is no .symtab */
  CT_SRC_ALL = (1 << 7) - 1,
};

struct ct_elf_options {
  const char *debug_root; /* NULL: /usr/lib/debug */
  uint32_t sources;       /* enum ct_source bits to use; 0: all */
  bool layout_only;       /* headers, build-id and soname: no symbols, no call frame information, no debug file */
};

/* Each returns 0, or CT_ENOENT, CT_EACCES, CT_EIO, CT_ENOMEM; CT_EFORMAT: no ELF file, or damaged headers;
   CT_EUNSUPPORTED: ELF, but not one of a 64-bit x86-64 process (32-bit, other machine, object file, core). */
int ct_elf_open(const char *path, struct ct_elf **out, struct ct_diag *diag);
/* A descriptor for ct_elf_open_fd, or an error. */
int ct_elf_open_file(const char *path, struct ct_diag *diag);
/* fd stays the caller's. path (may be NULL) is used in texts, and its folder for .gnu_debuglink. options may be NULL.
 */
int ct_elf_open_fd(int fd, const char *path, const struct ct_elf_options *options, struct ct_elf **out,
                   struct ct_diag *diag);
/* The bytes (e.g. a copy of a vdso) stay the caller's and must outlive the ct_elf. */
int ct_elf_open_bytes(const void *bytes, size_t size, const char *path, const struct ct_elf_options *options,
                      struct ct_elf **out, struct ct_diag *diag);
void ct_elf_close(struct ct_elf *elf); /* NULL is fine */
/* Gives the memory back that the files' pages took in this process; they come again when they are looked at. */
void ct_elf_drop_pages(const struct ct_elf *elf);

const char *ct_elf_path(const struct ct_elf *elf);       /* as given; "(memory)" without one */
const char *ct_elf_build_id(const struct ct_elf *elf);   /* lower-case hex, "" without one */
const char *ct_elf_interp(const struct ct_elf *elf);     /* PT_INTERP, NULL without one */
const char *ct_elf_soname(const struct ct_elf *elf);     /* DT_SONAME, NULL without one */
bool ct_elf_has_debug_info(const struct ct_elf *elf);    /* in the file itself */
const char *ct_elf_debug_path(const struct ct_elf *elf); /* the separate debug file in use, NULL without one */
uint16_t ct_elf_type(const struct ct_elf *elf);          /* ET_EXEC or ET_DYN */
uint64_t ct_elf_entry(const struct ct_elf *elf);         /* e_entry */

/* A file as stat reports it; all zero when there is none. */
struct ct_file_stamp {
  uint64_t bytes;
  int64_t changed_ns; /* modification time */
};
/* The files that ct_elf_open looks for as separate debug file, in its order, as they are now. Opens none of them. */
enum { CT_DEBUG_CANDIDATES = 6 };
void ct_elf_debug_stamps(const struct ct_elf *elf, struct ct_file_stamp stamps[CT_DEBUG_CANDIDATES]);

struct ct_elf_segment {
  uint64_t address; /* p_vaddr */
  uint64_t offset;
  uint64_t file_bytes; /* cut to what the file really has */
  uint64_t memory_bytes;
  uint32_t flags; /* PF_R | PF_W | PF_X */
};
/* PT_LOAD segments in the order of the file. Returns their number. */
size_t ct_elf_segments(const struct ct_elf *elf, const struct ct_elf_segment **segments);

struct ct_elf_section {
  uint64_t address;
  uint64_t size;
  const char *name;
  int is_plt; /* .plt, .plt.got, .plt.sec, .iplt */
};
/* Executable sections sorted by address; none when the file has no section headers. Returns their number. */
size_t ct_elf_exec_sections(const struct ct_elf *elf, const struct ct_elf_section **sections);
/* The executable section around address, or NULL. */
const struct ct_elf_section *ct_elf_exec_section_at(const struct ct_elf *elf, uint64_t address);

/* The file's bytes that are loaded at address: len of them, or NULL when not all are in one segment's file part. */
const uint8_t *ct_elf_bytes(const struct ct_elf *elf, uint64_t address, size_t len);
/* How many bytes ct_elf_bytes can give from address on; 0 outside. */
size_t ct_elf_bytes_left(const struct ct_elf *elf, uint64_t address);
/* The same for code: up to the end of an executable segment's file part, or to a data section inside it. */
size_t ct_elf_code_left(const struct ct_elf *elf, uint64_t address);
/* Nonzero when there is code at address. */
int ct_elf_is_code(const struct ct_elf *elf, uint64_t address);

/* Address of a defined symbol of any type but TLS: .dynsym (default version first), .symtab, debug file, mini debug
   info, in this order; within one table global before weak before local. 0 or CT_ENOENT. */
int ct_elf_symbol(const struct ct_elf *elf, const char *name, uint64_t *address);
/* True when a symbol in .dynsym has the name, whether the file has it or wants it from another one. */
bool ct_elf_links(const struct ct_elf *elf, const char *name);

#endif
