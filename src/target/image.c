/* SPDX-License-Identifier: MIT */
/* Checks and copies the header tables of an ELF file; see image.h. */
#include "target/image.h"

#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES_MAX (2ull << 30)

static bool
in_file(const struct ct_image *image, uint64_t offset, uint64_t bytes)
{
  return offset <= image->size && bytes <= image->size - offset;
}

static const char *
machine_name(uint16_t machine)
{
  switch (machine) {
  case EM_386:
    return "x86 (32-bit)";
  case EM_AARCH64:
    return "AArch64";
  case EM_ARM:
    return "ARM";
  case EM_RISCV:
    return "RISC-V";
  case EM_PPC64:
    return "POWER";
  case EM_S390:
    return "S/390";
  default:
    return "another machine";
  }
}

/* Whether this is a kind of file that we can work on at all, known by its first 64 bytes. */
static int
check_header(const struct ct_image *image, Elf64_Ehdr *header, const char *path, struct ct_diag *diag)
{
  if (image->size >= 2 && image->bytes[0] == '#' && image->bytes[1] == '!') {
    return ct_fail(diag, CT_EFORMAT, "%s: a script, not an ELF program; name its interpreter", path);
  }
  if (image->size < SELFMAG || memcmp(image->bytes, ELFMAG, SELFMAG) != 0) {
    return ct_fail(diag, CT_EFORMAT, "%s: not an ELF file", path);
  }
  if (image->size < EI_NIDENT + 4) {
    return ct_fail(diag, CT_EFORMAT, "%s: damaged ELF file: it ends inside its header", path);
  }

  uint16_t machine;
  memcpy(&machine, image->bytes + offsetof(Elf64_Ehdr, e_machine), sizeof(machine));
  if (image->bytes[EI_DATA] != ELFDATA2LSB) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s: a big-endian ELF file; only x86-64 is supported", path);
  }
  if (machine != EM_X86_64) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s: an ELF file for %s; only x86-64 is supported", path,
                   machine_name(machine));
  }
  if (image->bytes[EI_CLASS] != ELFCLASS64) {
    return ct_fail(diag, CT_EUNSUPPORTED, "%s: a 32-bit (x32) ELF file; only 64-bit is supported", path);
  }
  if (image->size < sizeof(*header)) {
    return ct_fail(diag, CT_EFORMAT, "%s: damaged ELF file: it ends inside its header", path);
  }

  memcpy(header, image->bytes, sizeof(*header));
  switch (header->e_type) {
  case ET_EXEC:
  case ET_DYN:
    return CT_OK;
  case ET_REL:
    return ct_fail(diag, CT_EUNSUPPORTED, "%s: an object file, not a program or shared library; link it first", path);
  case ET_CORE:
    return ct_fail(diag, CT_EUNSUPPORTED, "%s: a core dump, not a program or shared library", path);
  default:
    return ct_fail(diag, CT_EFORMAT, "%s: damaged ELF file: unknown type %u", path, header->e_type);
  }
}

/* The counts that do not fit into the header are in section 0. */
static void
section_zero(const struct ct_image *image, const Elf64_Ehdr *header, Elf64_Shdr *zero)
{
  memset(zero, 0, sizeof(*zero));
  if (header->e_shoff != 0 && header->e_shentsize == sizeof(*zero) && in_file(image, header->e_shoff, sizeof(*zero))) {
    memcpy(zero, image->bytes + header->e_shoff, sizeof(*zero));
  }
}

static int
copy_segments(struct ct_image *image, const Elf64_Ehdr *header, const Elf64_Shdr *zero, const char *path,
              struct ct_diag *diag)
{
  uint64_t count = header->e_phnum == PN_XNUM ? zero->sh_info : header->e_phnum;
  if (count == 0) {
    return CT_OK;
  }
  if (header->e_phentsize != sizeof(Elf64_Phdr) || !in_file(image, header->e_phoff, count * sizeof(Elf64_Phdr))) {
    return ct_fail(diag, CT_EFORMAT, "%s: damaged ELF file: its program headers lie outside it", path);
  }

  image->segments = malloc(count * sizeof(Elf64_Phdr));
  if (image->segments == NULL) {
    return ct_fail(diag, CT_ENOMEM, "%s: out of memory", path);
  }
  memcpy(image->segments, image->bytes + header->e_phoff, count * sizeof(Elf64_Phdr));
  image->segment_count = (uint32_t)count;
  return CT_OK;
}

/* A bad table is no reason to refuse: the kernel and the loader do not look at it. */
static int
copy_sections(struct ct_image *image, const Elf64_Ehdr *header, const Elf64_Shdr *zero, const char *path,
              struct ct_diag *diag)
{
  uint64_t count = header->e_shnum == 0 ? zero->sh_size : header->e_shnum;
  if (header->e_shoff == 0 || count == 0 || count > UINT32_MAX || header->e_shentsize != sizeof(Elf64_Shdr) ||
      !in_file(image, header->e_shoff, count * sizeof(Elf64_Shdr))) {
    return CT_OK;
  }

  image->sections = malloc(count * sizeof(Elf64_Shdr));
  if (image->sections == NULL) {
    return ct_fail(diag, CT_ENOMEM, "%s: out of memory", path);
  }
  memcpy(image->sections, image->bytes + header->e_shoff, count * sizeof(Elf64_Shdr));
  image->section_count = (uint32_t)count;

  uint32_t names = header->e_shstrndx == SHN_XINDEX ? zero->sh_link : header->e_shstrndx;
  if (names < count && image->sections[names].sh_type == SHT_STRTAB) {
    struct ct_symbols strings = {0};
    size_t bytes = 0;
    const uint8_t *start = ct_image_section_bytes(image, &image->sections[names], &bytes);
    ct_symbols_set_strings(&strings, (const char *)start, bytes);
    image->section_names = strings.strings;
    image->section_names_bytes = strings.strings_bytes;
  }
  return CT_OK;
}

int
ct_image_parse(struct ct_image *image, const char *path, struct ct_diag *diag)
{
  Elf64_Ehdr header;
  Elf64_Shdr zero;

  int err = check_header(image, &header, path, diag);
  if (err != CT_OK) {
    return err;
  }
  image->type = header.e_type;
  image->entry = header.e_entry;
  section_zero(image, &header, &zero);
  err = copy_segments(image, &header, &zero, path, diag);
  if (err != CT_OK) {
    return err;
  }
  return copy_sections(image, &header, &zero, path, diag);
}

/* What was checked must stay as it was, and a mapping of a file that is cut short is a bus error. */
static int
take_copy(struct ct_image *image, int fd, uint64_t size, const char *path, struct ct_diag *diag)
{
  if (size > COPY_BYTES_MAX) {
    return ct_fail(diag, CT_ERANGE, "%s: too large for a file that others may write to", path);
  }
  uint8_t *bytes = malloc(size);
  if (bytes == NULL) {
    return ct_fail(diag, CT_ENOMEM, "%s: out of memory", path);
  }
  size_t have = 0;
  ssize_t got = 1;
  while (have < size && (got > 0 || (got < 0 && errno == EINTR))) {
    got = pread(fd, bytes + have, size - have, (off_t)have);
    have += got > 0 ? (size_t)got : 0;
  }
  if (got < 0) {
    int err = errno;
    free(bytes);
    return ct_fail(diag, ct_err_from_errno(err), "%s: cannot read: %s", path, strerror(err));
  }
  image->mapping = bytes;
  image->bytes = bytes;
  image->size = have;
  return ct_image_parse(image, path, diag);
}

int
ct_image_map(struct ct_image *image, int fd, const char *path, struct ct_diag *diag)
{
  struct stat st;

  if (fstat(fd, &st) != 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "%s: %s", path, strerror(errno));
  }
  if (S_ISDIR(st.st_mode)) {
    return ct_fail(diag, CT_EFORMAT, "%s: a directory, not an ELF file", path);
  }
  if (!S_ISREG(st.st_mode)) {
    return ct_fail(diag, CT_EFORMAT, "%s: not a regular file", path);
  }
  if (st.st_size == 0) {
    return ct_fail(diag, CT_EFORMAT, "%s: not an ELF file (it is empty)", path);
  }

  if (ct_file_may_change(&st)) {
    return take_copy(image, fd, (uint64_t)st.st_size, path, diag);
  }

  void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (base == MAP_FAILED) {
    return ct_fail(diag, ct_err_from_errno(errno), "%s: cannot map: %s", path, strerror(errno));
  }
  image->mapping = base;
  image->mapping_bytes = (size_t)st.st_size;
  image->bytes = base;
  image->size = image->mapping_bytes;
  return ct_image_parse(image, path, diag);
}

void
ct_image_clear(struct ct_image *image)
{
  free(image->segments);
  free(image->sections);
  if (image->mapping_bytes != 0) {
    munmap(image->mapping, image->mapping_bytes);
  } else {
    free(image->mapping);
  }
  memset(image, 0, sizeof(*image));
}

const char *
ct_image_section_name(const struct ct_image *image, const Elf64_Shdr *section)
{
  return section->sh_name < image->section_names_bytes ? image->section_names + section->sh_name : "";
}

const Elf64_Shdr *
ct_image_section(const struct ct_image *image, const char *name)
{
  for (uint32_t i = 1; i < image->section_count; i++) {
    if (strcmp(ct_image_section_name(image, &image->sections[i]), name) == 0) {
      return &image->sections[i];
    }
  }
  return NULL;
}

const Elf64_Shdr *
ct_image_section_of_type(const struct ct_image *image, uint32_t type)
{
  for (uint32_t i = 1; i < image->section_count; i++) {
    if (image->sections[i].sh_type == type) {
      return &image->sections[i];
    }
  }
  return NULL;
}

const uint8_t *
ct_image_section_bytes(const struct ct_image *image, const Elf64_Shdr *section, size_t *size)
{
  *size = 0;
  if (section == NULL || section->sh_type == SHT_NOBITS || section->sh_type == SHT_NULL ||
      section->sh_offset >= image->size) {
    return NULL;
  }
  uint64_t left = image->size - section->sh_offset;
  *size = section->sh_size < left ? section->sh_size : left;
  return *size != 0 ? image->bytes + section->sh_offset : NULL;
}

void
ct_symbols_set_strings(struct ct_symbols *symbols, const char *strings, size_t bytes)
{
  if (strings == NULL) {
    bytes = 0;
  }
  while (bytes > 0 && strings[bytes - 1] != 0) {
    bytes--;
  }
  symbols->strings = bytes != 0 ? strings : "";
  symbols->strings_bytes = bytes != 0 ? bytes : 1;
}

void
ct_image_symbols(const struct ct_image *image, uint32_t section_type, struct ct_symbols *out)
{
  memset(out, 0, sizeof(*out));
  const Elf64_Shdr *table = ct_image_section_of_type(image, section_type);
  if (table == NULL || (table->sh_flags & SHF_COMPRESSED) != 0 || table->sh_link == 0 ||
      table->sh_link >= image->section_count) {
    return;
  }

  size_t bytes, string_bytes;
  out->entries = ct_image_section_bytes(image, table, &bytes);
  out->count = bytes / sizeof(Elf64_Sym);
  const uint8_t *strings = ct_image_section_bytes(image, &image->sections[table->sh_link], &string_bytes);
  ct_symbols_set_strings(out, (const char *)strings, string_bytes);

  if (section_type == SHT_DYNSYM) {
    out->versions = ct_image_section_bytes(image, ct_image_section_of_type(image, SHT_GNU_versym), &bytes);
    out->version_count = bytes / sizeof(uint16_t);
  }
}

/* Looks through one run of notes. align is 4, or 8 in segments made for .note.gnu.property. */
static size_t
build_id_in_notes(const uint8_t *notes, size_t size, size_t align, uint8_t out[CT_BUILD_ID_BYTES_MAX])
{
  Elf64_Nhdr note;

  while (size >= sizeof(note)) {
    memcpy(&note, notes, sizeof(note));
    uint64_t desc = (sizeof(note) + (uint64_t)note.n_namesz + align - 1) & ~(uint64_t)(align - 1);
    uint64_t next = (desc + note.n_descsz + align - 1) & ~(uint64_t)(align - 1);
    if (desc > size || note.n_descsz > size - desc) {
      return 0;
    }
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(notes + sizeof(note), "GNU", 4) == 0 &&
        note.n_descsz != 0 && note.n_descsz <= CT_BUILD_ID_BYTES_MAX) {
      memcpy(out, notes + desc, note.n_descsz);
      return note.n_descsz;
    }
    if (next >= size) {
      return 0;
    }
    notes += next;
    size -= next;
  }
  return 0;
}

size_t
ct_image_build_id(const struct ct_image *image, uint8_t out[CT_BUILD_ID_BYTES_MAX])
{
  size_t found = 0;

  /* Sections first: in a debug file the segments' contents are gone. */
  for (uint32_t i = 1; i < image->section_count && found == 0; i++) {
    const Elf64_Shdr *section = &image->sections[i];
    size_t size;
    const uint8_t *notes = section->sh_type == SHT_NOTE ? ct_image_section_bytes(image, section, &size) : NULL;
    if (notes != NULL) {
      found = build_id_in_notes(notes, size, section->sh_addralign == 8 ? 8 : 4, out);
    }
  }
  for (uint32_t i = 0; i < image->segment_count && found == 0; i++) {
    const Elf64_Phdr *segment = &image->segments[i];
    if (segment->p_type == PT_NOTE && in_file(image, segment->p_offset, segment->p_filesz)) {
      found =
          build_id_in_notes(image->bytes + segment->p_offset, segment->p_filesz, segment->p_align == 8 ? 8 : 4, out);
    }
  }
  return found;
}

char *
ct_image_writable(const struct ct_image *image)
{
  bool compressed = false;
  for (uint32_t i = 0; i < image->section_count; i++) {
    const char *name = ct_image_section_name(image, &image->sections[i]);
    compressed |= (image->sections[i].sh_flags & SHF_COMPRESSED) != 0 || strncmp(name, ".zdebug", 7) == 0;
  }
  if (!compressed) {
    return (char *)image->bytes; /* only read */
  }
  char *copy = mmap(NULL, image->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) {
    return NULL;
  }
  memcpy(copy, image->bytes, image->size);
  return copy;
}

void
ct_image_release_writable(const struct ct_image *image, char *bytes)
{
  if (bytes != NULL && bytes != (char *)image->bytes) {
    munmap(bytes, image->size);
  }
}
