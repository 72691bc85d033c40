/* SPDX-License-Identifier: MIT */
/* Opens a ct_elf and answers questions about its layout; see elf.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "target/target_internal.h"
#include "target/sort.h"

static int
collect_segments(struct ct_elf *elf, struct ct_diag *diag)
{
  const struct ct_image *image = &elf->main;

  elf->segments = calloc(image->segment_count + 1, sizeof(*elf->segments));
  if (elf->segments == NULL) {
    return ct_fail(diag, CT_ENOMEM, "%s: out of memory", elf->path);
  }
  for (uint32_t i = 0; i < image->segment_count; i++) {
    const Elf64_Phdr *p = &image->segments[i];
    uint64_t left = p->p_offset < image->size ? image->size - p->p_offset : 0;
    if (p->p_type == PT_INTERP && p->p_filesz <= left && p->p_filesz != 0 &&
        memchr(image->bytes + p->p_offset, 0, p->p_filesz) != NULL) {
      elf->interp = (const char *)image->bytes + p->p_offset;
    }
    if (p->p_type != PT_LOAD) {
      continue;
    }
    if (p->p_memsz > UINT64_MAX - p->p_vaddr || p->p_filesz > p->p_memsz) {
      return ct_fail(diag, CT_EFORMAT, "%s: damaged ELF file: segment %u has impossible sizes", elf->path, i);
    }
    elf->segments[elf->segment_count++] = (struct ct_elf_segment){
        .address = p->p_vaddr,
        .offset = p->p_offset,
        .file_bytes = p->p_filesz < left ? p->p_filesz : left,
        .memory_bytes = p->p_memsz,
        .flags = p->p_flags,
    };
  }
  if (elf->segment_count == 0) {
    return ct_fail(diag, CT_EFORMAT, "%s: damaged ELF file: nothing in it is loaded", elf->path);
  }
  return CT_OK;
}

/* The end of the file part of the executable segment around address; 0 when there is none. */
static uint64_t
code_segment_end(const struct ct_elf *elf, uint64_t address)
{
  for (size_t i = 0; i < elf->segment_count; i++) {
    const struct ct_elf_segment *segment = &elf->segments[i];
    if ((segment->flags & PF_X) != 0 && address - segment->address < segment->file_bytes &&
        address >= segment->address) {
      return segment->address + segment->file_bytes;
    }
  }
  return 0;
}

/* Sorts by start and joins what overlaps, in place. */
static bool
normalize_extents(struct ct_extent *extents, size_t *count)
{
  struct ct_sort_key *keys = malloc((*count + 1) * sizeof(*keys));
  struct ct_extent *sorted = malloc((*count + 1) * sizeof(*sorted));
  bool done = keys != NULL && sorted != NULL;

  for (size_t i = 0; done && i < *count; i++) {
    keys[i] = (struct ct_sort_key){extents[i].start, i};
  }
  if (done) {
    done = ct_sort_keys(keys, *count);
  }
  if (done) {
    size_t n = 0;
    for (size_t i = 0; i < *count; i++) {
      struct ct_extent next = extents[keys[i].index];
      if (n > 0 && next.start <= sorted[n - 1].end) {
        sorted[n - 1].end = next.end > sorted[n - 1].end ? next.end : sorted[n - 1].end;
      } else {
        sorted[n++] = next;
      }
    }
    memcpy(extents, sorted, n * sizeof(*sorted));
    *count = n;
  }
  free(keys);
  free(sorted);
  return done;
}

static bool
is_plt_name(const char *name)
{
  return strncmp(name, ".plt", 4) == 0 || strncmp(name, ".iplt", 5) == 0;
}

static int
compare_sections(const void *a, const void *b)
{
  const struct ct_elf_section *x = a, *y = b;
  return x->address < y->address ? -1 : x->address > y->address;
}

static int
collect_sections(struct ct_elf *elf, struct ct_diag *diag)
{
  const struct ct_image *image = &elf->main;

  if (image->section_count == 0) {
    return CT_OK;
  }
  elf->exec_sections = calloc(image->section_count, sizeof(*elf->exec_sections));
  elf->data_in_code = calloc(image->section_count, sizeof(*elf->data_in_code));
  if (elf->exec_sections == NULL || elf->data_in_code == NULL) {
    return ct_fail(diag, CT_ENOMEM, "%s: out of memory", elf->path);
  }
  for (uint32_t i = 1; i < image->section_count; i++) {
    const Elf64_Shdr *section = &image->sections[i];
    if ((section->sh_flags & SHF_ALLOC) == 0 || section->sh_size == 0 || section->sh_type == SHT_NOBITS ||
        section->sh_size > UINT64_MAX - section->sh_addr || code_segment_end(elf, section->sh_addr) == 0) {
      continue;
    }
    if ((section->sh_flags & SHF_EXECINSTR) == 0) {
      elf->data_in_code[elf->data_in_code_count++] =
          (struct ct_extent){section->sh_addr, section->sh_addr + section->sh_size};
      continue;
    }
    const char *name = ct_image_section_name(image, section);
    elf->exec_sections[elf->exec_section_count++] =
        (struct ct_elf_section){section->sh_addr, section->sh_size, name, is_plt_name(name)};
  }
  qsort(elf->exec_sections, elf->exec_section_count, sizeof(*elf->exec_sections), compare_sections);
  if (!normalize_extents(elf->data_in_code, &elf->data_in_code_count)) {
    return ct_fail(diag, CT_ENOMEM, "%s: out of memory", elf->path);
  }
  return CT_OK;
}

static void
collect_build_id(struct ct_elf *elf)
{
  uint8_t id[CT_BUILD_ID_BYTES_MAX];
  size_t bytes = ct_image_build_id(&elf->main, id);

  for (size_t i = 0; i < bytes; i++) {
    sprintf(elf->build_id + 2 * i, "%02x", id[i]);
  }
}

/* .eh_frame by its section; without section headers by what .eh_frame_hdr says (version 1, usual encodings). */
static int
collect_cfi(struct ct_elf *elf)
{
  const struct ct_image *image = &elf->main;
  const Elf64_Shdr *section = ct_image_section(image, ".eh_frame");
  size_t size;

  const uint8_t *bytes = ct_image_section_bytes(image, section, &size);
  if (bytes != NULL && (section->sh_flags & SHF_ALLOC) != 0) {
    return ct_cfi_build(elf, bytes, size, section->sh_addr, false);
  }

  for (uint32_t i = 0; i < image->segment_count; i++) {
    if (image->segments[i].p_type != PT_GNU_EH_FRAME) {
      continue;
    }
    uint64_t header = image->segments[i].p_vaddr;
    const uint8_t *at = ct_elf_bytes(elf, header, 8);
    int32_t distance;
    if (at == NULL || at[0] != 1 || at[1] != 0x1b) { /* pcrel sdata4, as every linker writes it */
      return CT_OK;
    }
    memcpy(&distance, at + 4, sizeof(distance));
    uint64_t start = header + 4 + (uint64_t)(int64_t)distance;
    size = ct_elf_bytes_left(elf, start);
    if (size != 0) {
      return ct_cfi_build(elf, ct_elf_bytes(elf, start, size), size, start, true);
    }
  }
  return CT_OK;
}

static int
collect_symbols(struct ct_elf *elf)
{
  if ((elf->sources & CT_SRC_SYMTAB) != 0) {
    ct_image_symbols(&elf->main, SHT_SYMTAB, &elf->symtab);
  }
  if ((elf->sources & CT_SRC_DEBUGFILE) != 0) {
    int err = ct_debugfile_find(elf);
    if (err != CT_OK) {
      return err;
    }
    ct_image_symbols(&elf->debug, SHT_SYMTAB, &elf->debug_symtab);
  }
  if ((elf->sources & CT_SRC_MINIDEBUG) != 0) {
    int err = ct_minidebug_unpack(elf);
    if (err != CT_OK) {
      return err;
    }
    ct_image_symbols(&elf->mini, SHT_SYMTAB, &elf->mini_symtab);
  }
  return CT_OK;
}

/* Everything after the headers. */
static int
analyse(struct ct_elf *elf, struct ct_diag *diag)
{
  int err = collect_segments(elf, diag);
  if (err != CT_OK) {
    return err;
  }
  err = collect_sections(elf, diag);
  if (err != CT_OK) {
    return err;
  }
  collect_build_id(elf);
  ct_dynamic_read(elf);
  if (elf->layout_only) {
    return CT_OK;
  }
  err = collect_symbols(elf);
  if (err == CT_OK) {
    err = collect_cfi(elf);
  }
  return err == CT_OK ? CT_OK : ct_fail(diag, err, "%s: %s", elf->path, ct_err_text(err));
}

static struct ct_elf *
new_elf(const char *path, const struct ct_elf_options *options)
{
  struct ct_elf *elf = calloc(1, sizeof(*elf));
  if (elf == NULL) {
    return NULL;
  }
  elf->path = strdup(path != NULL ? path : "(memory)");
  elf->debug_root = strdup(options != NULL && options->debug_root != NULL ? options->debug_root : "/usr/lib/debug");
  elf->sources = options != NULL && options->sources != 0 ? options->sources : CT_SRC_ALL;
  elf->layout_only = options != NULL && options->layout_only;
  if (elf->path == NULL || elf->debug_root == NULL) {
    ct_elf_close(elf);
    return NULL;
  }
  return elf;
}

static int
finish(struct ct_elf *elf, int err, struct ct_elf **out, struct ct_diag *diag)
{
  if (err == CT_OK) {
    err = analyse(elf, diag);
  }
  if (err != CT_OK) {
    ct_elf_close(elf);
    return err;
  }
  *out = elf;
  return CT_OK;
}

int
ct_elf_open_fd(int fd, const char *path, const struct ct_elf_options *options, struct ct_elf **out,
               struct ct_diag *diag)
{
  struct ct_elf *elf = new_elf(path, options);
  if (elf == NULL) {
    return ct_fail(diag, CT_ENOMEM, "%s: out of memory", path != NULL ? path : "(memory)");
  }
  return finish(elf, ct_image_map(&elf->main, fd, elf->path, diag), out, diag);
}

int
ct_elf_open_bytes(const void *bytes, size_t size, const char *path, const struct ct_elf_options *options,
                  struct ct_elf **out, struct ct_diag *diag)
{
  struct ct_elf *elf = new_elf(path, options);
  if (elf == NULL) {
    return ct_fail(diag, CT_ENOMEM, "%s: out of memory", path != NULL ? path : "(memory)");
  }
  elf->main.bytes = bytes;
  elf->main.size = size;
  return finish(elf, ct_image_parse(&elf->main, elf->path, diag), out, diag);
}

int
ct_elf_open_file(const char *path, struct ct_diag *diag)
{
  /* Not blocking: the path may name a FIFO. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  return fd >= 0 ? fd : ct_fail(diag, ct_err_from_errno(errno), "%s: %s", path, strerror(errno));
}

int
ct_elf_open(const char *path, struct ct_elf **out, struct ct_diag *diag)
{
  int fd = ct_elf_open_file(path, diag);
  if (fd < 0) {
    return fd;
  }
  int err = ct_elf_open_fd(fd, path, NULL, out, diag);
  close(fd);
  return err;
}

void
ct_elf_drop_pages(const struct ct_elf *elf)
{
  const struct ct_image *images[] = {&elf->main, &elf->debug};
  for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
    if (images[i]->mapping_bytes != 0) {
      madvise(images[i]->mapping, images[i]->mapping_bytes, MADV_DONTNEED);
    }
  }
}

void
ct_elf_close(struct ct_elf *elf)
{
  if (elf == NULL) {
    return;
  }
  ct_dwarf_close(elf->dwarf);
  ct_image_clear(&elf->main);
  ct_image_clear(&elf->debug);
  ct_image_clear(&elf->mini);
  free(elf->cfi.cies);
  free(elf->cfi.fdes);
  free(elf->segments);
  free(elf->exec_sections);
  free(elf->data_in_code);
  free(elf->functions);
  free(elf->aliases);
  free(elf->debug_path);
  free(elf->debug_root);
  free(elf->path);
  free(elf);
}

const char *
ct_elf_path(const struct ct_elf *elf)
{
  return elf->path;
}

const char *
ct_elf_build_id(const struct ct_elf *elf)
{
  return elf->build_id;
}

const char *
ct_elf_interp(const struct ct_elf *elf)
{
  return elf->interp;
}

const char *
ct_elf_soname(const struct ct_elf *elf)
{
  return elf->soname;
}

bool
ct_elf_has_debug_info(const struct ct_elf *elf)
{
  return ct_image_section(&elf->main, ".debug_info") != NULL || ct_image_section(&elf->main, ".zdebug_info") != NULL;
}

const char *
ct_elf_debug_path(const struct ct_elf *elf)
{
  return elf->debug_path;
}

uint16_t
ct_elf_type(const struct ct_elf *elf)
{
  return elf->main.type;
}

uint64_t
ct_elf_entry(const struct ct_elf *elf)
{
  return elf->main.entry;
}

size_t
ct_elf_segments(const struct ct_elf *elf, const struct ct_elf_segment **segments)
{
  *segments = elf->segments;
  return elf->segment_count;
}

size_t
ct_elf_exec_sections(const struct ct_elf *elf, const struct ct_elf_section **sections)
{
  *sections = elf->exec_sections;
  return elf->exec_section_count;
}

const struct ct_elf_section *
ct_elf_exec_section_at(const struct ct_elf *elf, uint64_t address)
{
  size_t low = 0, high = elf->exec_section_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (elf->exec_sections[middle].address <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0 || address - elf->exec_sections[low - 1].address >= elf->exec_sections[low - 1].size) {
    return NULL;
  }
  return &elf->exec_sections[low - 1];
}

size_t
ct_elf_bytes_left(const struct ct_elf *elf, uint64_t address)
{
  for (size_t i = 0; i < elf->segment_count; i++) {
    const struct ct_elf_segment *segment = &elf->segments[i];
    if (address >= segment->address && address - segment->address < segment->file_bytes) {
      return segment->file_bytes - (address - segment->address);
    }
  }
  return 0;
}

const uint8_t *
ct_elf_bytes(const struct ct_elf *elf, uint64_t address, size_t len)
{
  for (size_t i = 0; i < elf->segment_count; i++) {
    const struct ct_elf_segment *segment = &elf->segments[i];
    if (address >= segment->address && address - segment->address < segment->file_bytes) {
      return len <= segment->file_bytes - (address - segment->address)
                 ? elf->main.bytes + segment->offset + (address - segment->address)
                 : NULL;
    }
  }
  return NULL;
}

size_t
ct_elf_code_left(const struct ct_elf *elf, uint64_t address)
{
  uint64_t end = code_segment_end(elf, address);
  if (end == 0) {
    return 0;
  }
  size_t low = 0, high = elf->data_in_code_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (elf->data_in_code[middle].end <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low < elf->data_in_code_count && elf->data_in_code[low].start < end) {
    end = elf->data_in_code[low].start;
  }
  return end > address ? end - address : 0;
}

int
ct_elf_is_code(const struct ct_elf *elf, uint64_t address)
{
  return ct_elf_code_left(elf, address) != 0;
}
