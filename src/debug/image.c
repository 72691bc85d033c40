/* SPDX-License-Identifier: MIT */
/* See image.h. Files are read by their headers (elf.h): a debugger reads them itself. */
#include "debug/image.h"

#include "base/error.h"

#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4400, HEADERS_MAX = 128 };

/* ---- maps ---- */

static bool
enter_file(struct ct_debug_image *image, const char *path, size_t *number)
{
  for (*number = 0; *number < image->file_count; (*number)++) {
    if (strcmp(image->files[*number].path, path) == 0) {
      return true;
    }
  }
  struct ct_image_file *files = reallocarray(image->files, image->file_count + 1, sizeof(*files));
  char *copy = strdup(path);
  image->files = files != NULL ? files : image->files;
  if (files == NULL || copy == NULL) {
    free(copy);
    return false;
  }
  files[image->file_count++] = (struct ct_image_file){.path = copy, .fd = -1};
  return true;
}

/* What only the recorder has put there, and files that are gone, are no files. */
static bool
is_file(const char *path)
{
  size_t length = strlen(path);
  static const char gone[] = " (deleted)";
  return path[0] == '/' && strncmp(path, "/memfd:", 7) != 0 &&
         (length < sizeof(gone) || strcmp(path + length - (sizeof(gone) - 1), gone) != 0);
}

static int
take_line(struct ct_debug_image *image, const char *line, size_t length)
{
  char text[PATH_BYTES], rights[5] = "";
  struct ct_image_mapping mapping = {.file = SIZE_MAX};
  int path = 0;
  if (length >= sizeof(text)) {
    return 0;
  }
  memcpy(text, line, length);
  text[length] = 0;
  if (sscanf(text, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %*s %n", &mapping.start, &mapping.end, rights,
             &mapping.offset, &path) < 4 ||
      path == 0 || mapping.start >= mapping.end) {
    return 0;
  }
  mapping.writable = rights[1] == 'w';
  struct ct_image_mapping *mappings = reallocarray(image->mappings, image->mapping_count + 1, sizeof(*mappings));
  if (mappings == NULL) {
    return CT_ENOMEM;
  }
  image->mappings = mappings;
  if (is_file(text + path) && !enter_file(image, text + path, &mapping.file)) {
    return CT_ENOMEM;
  }
  mappings[image->mapping_count++] = mapping;
  return 0;
}

/* ---- files ---- */

static void
read_headers(struct ct_image_file *file, uint64_t base)
{
  Elf64_Ehdr head;
  Elf64_Phdr headers[HEADERS_MAX];
  if (pread(file->fd, &head, sizeof(head), 0) != sizeof(head) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
      head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof(headers[0]) || head.e_phnum > HEADERS_MAX) {
    return;
  }
  ssize_t bytes = (ssize_t)(head.e_phnum * sizeof(headers[0]));
  if (pread(file->fd, headers, (size_t)bytes, (off_t)head.e_phoff) != bytes) {
    return;
  }
  uint64_t first = UINT64_MAX, dynamic = 0, relocated = 0, relocated_bytes = 0;
  for (unsigned i = 0; i < head.e_phnum; i++) {
    uint64_t address = headers[i].p_vaddr - headers[i].p_offset;
    first = headers[i].p_type == PT_LOAD && headers[i].p_offset < 4096 && address < first ? address : first;
    dynamic = headers[i].p_type == PT_DYNAMIC ? headers[i].p_vaddr : dynamic;
    if (headers[i].p_type == PT_GNU_RELRO) {
      relocated = headers[i].p_vaddr;
      relocated_bytes = headers[i].p_memsz;
    }
  }
  if (first == UINT64_MAX) {
    return;
  }
  file->is_elf = true;
  file->base = base;
  file->bias = base - first;
  file->entry = head.e_entry + file->bias;
  file->headers = base + head.e_phoff;
  file->header_count = head.e_phnum;
  file->header_bytes = head.e_phentsize;
  file->dynamic = dynamic != 0 ? dynamic + file->bias : 0;
  file->relocated_start = relocated + file->bias;
  file->relocated_end = file->relocated_start + relocated_bytes;
}

int
ct_image_read(const char *maps, struct ct_debug_image *image)
{
  int code = 0;
  *image = (struct ct_debug_image){.mappings = NULL};
  for (const char *line = maps; *line != 0 && code == 0;) {
    size_t length = strcspn(line, "\n");
    code = take_line(image, line, length);
    line += length + (line[length] == '\n');
  }
  for (size_t i = 0; i < image->mapping_count && code == 0; i++) {
    const struct ct_image_mapping *mapping = &image->mappings[i];
    struct ct_image_file *file = mapping->file != SIZE_MAX ? &image->files[mapping->file] : NULL;
    struct stat info;
    if (file == NULL || file->fd >= 0 || mapping->offset != 0 || stat(file->path, &info) != 0 ||
        !S_ISREG(info.st_mode)) {
      continue;
    }
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd >= 0) {
      read_headers(file, mapping->start);
    }
  }
  return code;
}

void
ct_image_free(struct ct_debug_image *image)
{
  for (size_t i = 0; i < image->file_count; i++) {
    if (image->files[i].fd >= 0) {
      close(image->files[i].fd);
    }
    free(image->files[i].path);
  }
  free(image->files);
  free(image->mappings);
}

/* The kernel maps it first, below its loader and libraries, but for a program that was started by its loader. */
const struct ct_image_file *
ct_image_program(const struct ct_debug_image *image)
{
  for (size_t i = 0; i < image->mapping_count; i++) {
    size_t file = image->mappings[i].file;
    if (file != SIZE_MAX && image->files[file].is_elf) {
      return &image->files[file];
    }
  }
  return NULL;
}

/* What the loader has made read-only, after it had written there. */
static bool
is_relocated(const struct ct_image_file *file, uint64_t address)
{
  return file->is_elf && address >= file->relocated_start && address < file->relocated_end;
}

bool
ct_image_has(const struct ct_debug_image *image, uint64_t address, uint64_t bytes)
{
  for (size_t i = 0; i < image->mapping_count; i++) {
    const struct ct_image_mapping *mapping = &image->mappings[i];
    if (mapping->file != SIZE_MAX && !mapping->writable && image->files[mapping->file].fd >= 0 &&
        mapping->start <= address + bytes - 1 && address < mapping->end) {
      return true;
    }
  }
  return false;
}

size_t
ct_image_memory(const struct ct_debug_image *image, uint64_t address, uint8_t *bytes, size_t size)
{
  for (size_t i = 0; i < image->mapping_count; i++) {
    const struct ct_image_mapping *mapping = &image->mappings[i];
    if (address < mapping->start || address >= mapping->end || mapping->file == SIZE_MAX || mapping->writable ||
        image->files[mapping->file].fd < 0 || is_relocated(&image->files[mapping->file], address)) {
      continue;
    }
    const struct ct_image_file *file = &image->files[mapping->file];
    uint64_t end = file->is_elf && file->relocated_start > address && file->relocated_start < mapping->end
                       ? file->relocated_start
                       : mapping->end;
    uint64_t left = end - address, at = mapping->offset + (address - mapping->start);
    ssize_t got = pread(image->files[mapping->file].fd, bytes, size < left ? size : left, (off_t)at);
    return got > 0 ? (size_t)got : 0;
  }
  return 0;
}

/* ---- documents ---- */

static void
put_escaped(const char *text, FILE *out)
{
  for (; *text != 0; text++) {
    if (strchr("<>&'\"", *text) != NULL) {
      fprintf(out, "&#%d;", (unsigned char)*text);
    } else {
      fputc(*text, out);
    }
  }
}

void
ct_image_libraries(const struct ct_debug_image *image, FILE *out)
{
  const struct ct_image_file *program = ct_image_program(image);
  fputs("<library-list-svr4 version=\"1.0\">", out);
  for (size_t i = 0; i < image->file_count; i++) {
    const struct ct_image_file *file = &image->files[i];
    if (file == program || !file->is_elf || file->dynamic == 0) {
      continue;
    }
    fputs("<library lmid=\"0x0\" name=\"", out);
    put_escaped(file->path, out);
    fprintf(out, "\" lm=\"0x%" PRIx64 "\" l_addr=\"0x%" PRIx64 "\" l_ld=\"0x%" PRIx64 "\"/>", file->dynamic, file->bias,
            file->dynamic);
  }
  fputs("</library-list-svr4>", out);
}

void
ct_image_auxv(const struct ct_debug_image *image, FILE *out)
{
  const struct ct_image_file *program = ct_image_program(image);
  if (program == NULL) {
    return;
  }
  uint64_t loader = 0;
  for (size_t i = 0; i < image->file_count; i++) {
    const char *slash = strrchr(image->files[i].path, '/');
    if (image->files[i].is_elf && slash != NULL && strncmp(slash, "/ld-", 4) == 0) {
      loader = image->files[i].base;
    }
  }
  const uint64_t pairs[] = {AT_PHDR,   program->headers,
                            AT_PHENT,  program->header_bytes,
                            AT_PHNUM,  program->header_count,
                            AT_PAGESZ, 4096,
                            AT_BASE,   loader,
                            AT_ENTRY,  program->entry,
                            AT_NULL,   0};
  fwrite(pairs, 1, sizeof(pairs), out);
}
