/* SPDX-License-Identifier: MIT */
/*
 * The memory of a recording of the last stretch, as contrail recover reads it. The input is a list of changes to a good
 * file: which part (0: the header, n: the nth record), offset (1 byte), size (1), value (up to 8); part 255: the file
 * ends so many times 32 bytes after its header. The checksum of what is changed is put right, unless the size has its
 * upper bit set, so that the checks after it are what is tested.
 */
#include "fuzz.h"

#include "base/crc32c.h"
#include "trace/store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORDS = 12, RECORD_BYTES = 1024, CAPACITY = 512 * 1024, STEP = 32 };

struct file {
  struct ct_store_header header;
  uint8_t rest[CT_STORE_HEADER_BYTES - sizeof(struct ct_store_header)];
  uint8_t log[RECORDS * RECORD_BYTES];
};

static struct ct_store_record *
record_at(struct file *file, unsigned n)
{
  return (struct ct_store_record *)(file->log + (size_t)n * RECORD_BYTES);
}

static void
sign_header(struct file *file)
{
  file->header.header_crc = ct_crc32c(0, &file->header, offsetof(struct ct_store_header, header_crc));
}

static void
sign_record(struct ct_store_record *record)
{
  struct ct_store_record copy = *record;
  copy.crc = 0;
  record->crc = ct_crc32c(0, &copy, sizeof(copy));
}

static void
make_file(struct file *file)
{
  memset(file, 0, sizeof(*file));
  file->header = (struct ct_store_header){.magic = CT_STORE_MAGIC,
                                          .version = CT_STORE_VERSION,
                                          .capacity = CAPACITY,
                                          .recorder = 1,
                                          .first_sequence = 1,
                                          .head = RECORDS * RECORD_BYTES,
                                          .path = "/tmp/trace"};
  sign_header(file);
  for (unsigned n = 0; n < RECORDS; n++) {
    struct ct_store_record *record = record_at(file, n);
    *record = (struct ct_store_record){.magic = CT_STORE_RECORD_MAGIC,
                                       .record_bytes = RECORD_BYTES,
                                       .data_bytes = 100 + n,
                                       .kind = n % 4,
                                       .sequence = n + 1,
                                       .thread = n % 3,
                                       .name = "thread",
                                       .events = n};
    sign_record(record);
  }
}

/* Returns the bytes of the file. */
static off_t
change(struct file *file, struct input *input)
{
  off_t bytes = CT_STORE_HEADER_BYTES + CAPACITY;
  while (input->at < input->end) {
    unsigned part = (unsigned)input_number(input, 1), offset = (unsigned)input_number(input, 1);
    unsigned size = (unsigned)input_number(input, 1);
    uint64_t value = input_number(input, (size & 7) + 1);
    if (part == 255) {
      bytes = CT_STORE_HEADER_BYTES + (off_t)(value % (CAPACITY / STEP)) * STEP;
      continue;
    }
    struct ct_store_record *record = part == 0 ? NULL : record_at(file, (part - 1) % RECORDS);
    uint8_t *begin = record != NULL ? (uint8_t *)record : (uint8_t *)&file->header;
    size_t room = 128 - offset % 128;
    memcpy(begin + offset % 128, &value, (size & 7) + 1 < room ? (size & 7) + 1 : room);
    if ((size & 0x80) == 0 && record != NULL) {
      sign_record(record);
    } else if ((size & 0x80) == 0) {
      sign_header(file);
    }
  }
  return bytes;
}

/* A file of its own for each process that fuzzes, and the folder that it is in. */
static int
folder(const char **name)
{
  static int fd = -1;
  static char path[64], file[32];
  if (fd < 0) {
    snprintf(path, sizeof(path), "/tmp");
    snprintf(file, sizeof(file), "fuzz-store-%d.store", (int)getpid());
    fd = open(path, O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0);
  }
  *name = file;
  return fd;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static struct file file;
  struct input input = {data, data + size};
  struct ct_store_image *image;
  struct ct_store_record record;
  struct ct_store_buffer buffer = {0};
  const char *name;
  make_file(&file);
  off_t bytes = change(&file, &input);
  int dir = folder(&name);
  int fd = openat(dir, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  CHECK(fd >= 0 && pwrite(fd, &file, sizeof(file), 0) == (ssize_t)sizeof(file) && ftruncate(fd, bytes) == 0);
  close(fd);
  if (ct_store_open(dir, name, &image, NULL) == 0) {
    const struct ct_store_header *header = ct_store_image_header(image);
    uint64_t sequence = 0;
    unsigned count = 0;
    CHECK(header->tail <= header->head && memchr(header->path, '\0', sizeof(header->path)) != NULL);
    while (ct_store_next(image, &record, &buffer)) {
      CHECK(record.kind != CT_STORE_SKIP && record.data_bytes <= CT_STORE_DATA_MAX);
      CHECK(record.data_bytes <= buffer.capacity && memchr(record.name, '\0', sizeof(record.name)) != NULL);
      CHECK(record.sequence >= sequence);
      sequence = record.sequence + 1;
      for (uint32_t i = 0; i < record.data_bytes; i++) { /* read all of it */
        __asm__ volatile("" : : "r"(buffer.data[i]));
      }
      CHECK(++count <= RECORDS * (RECORD_BYTES / STEP));
    }
    CHECK(size != 0 || (count == RECORDS - RECORDS / 4 && ct_store_image_gaps(image) == 0));
    ct_store_close(image);
  }
  free(buffer.data);
  CHECK(unlinkat(dir, name, 0) == 0);
  return 0;
}
