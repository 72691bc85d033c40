/* SPDX-License-Identifier: MIT */
/* The recorder's side of the store; see store.h. store_image.c reads one whose recorder is dead. */
#include "trace/store.h"

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/runtime_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNIT  32u
#define NAMES 1000 /* of stores of one recorder */

/* What the recorder knows of a record without looking into the file. */
struct entry {
  uint64_t position;
  uint64_t put_ns;
  uint64_t last_tsc;
  struct ct_store_share *share;
  uint32_t record_bytes, events;
};

struct ct_store {
  pthread_mutex_t lock; /* over all below; who puts is one thread */
  struct ct_store_header *header;
  uint8_t *log;
  uint64_t capacity, limit_ns;
  uint64_t tail, head;     /* as the header has them */
  struct entry *entries;   /* those of the records, circular */
  size_t entries_capacity; /* a power of two */
  uint64_t first, next;    /* sequence numbers; entry of n: n mod entries_capacity */
  uint64_t events, gone_events, begin_tsc, since_ns;
  size_t mapped_bytes;
  int fd;
  struct ct_runtime_dir dir;
  char name[32];
  char path[320];
};

/* ---- creation ---- */

/* Of the machine, in bytes; UINT64_MAX where that is not known. */
static uint64_t
memory_available(void)
{
  char line[256];
  uint64_t kib = UINT64_MAX / 1024;
  FILE *file = fopen("/proc/meminfo", "re");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1) {
      break;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return kib < UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
}

/* A new file with all its room, locked. 0, or an errno value. */
static int
create_file(struct ct_store *store, uint64_t bytes)
{
  static _Atomic uint32_t number;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  int fd = -1;
  for (int tries = 0; tries < NAMES && fd < 0; tries++) {
    uint32_t n = atomic_fetch_add_explicit(&number, 1, memory_order_relaxed);
    snprintf(store->name, sizeof(store->name), "%ld-%u" CT_STORE_SUFFIX, (long)getpid(), n);
    fd = openat(store->dir.fd, store->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST) {
      return errno;
    }
  }
  if (fd < 0) {
    return EEXIST;
  }
  int err = fcntl(fd, F_SETLK, &lock) != 0 ? errno : 0;
  while (err == 0 && (err = posix_fallocate(fd, 0, (off_t)bytes)) == EINTR) {
    err = 0;
  }
  void *mapped = err == 0 ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    err = err != 0 ? err : errno;
    unlinkat(store->dir.fd, store->name, 0);
    close(fd);
    return err;
  }
  store->fd = fd;
  store->header = mapped;
  store->log = (uint8_t *)mapped + CT_STORE_HEADER_BYTES;
  store->mapped_bytes = bytes;
  return 0;
}

/* In the first of the two places where there is room. */
static int
find_place(struct ct_store *store, uint64_t bytes, struct ct_diag *diag)
{
  struct ct_diag why = {""};
  for (int turn = 0; turn < 2; turn++) {
    bool shm = (turn == 0) != ct_runtime_dir_is_set(); /* a /tmp that stands in for it may be a disk */
    int code = shm ? ct_runtime_dir_open_shm(&store->dir, true, &why) : ct_runtime_dir_open(&store->dir, true, &why);
    if (code == CT_OK) {
      int err = create_file(store, bytes);
      if (err == 0) {
        snprintf(store->path, sizeof(store->path), "%s/%s", store->dir.path, store->name);
        return CT_OK;
      }
      ct_fail(&why, ct_err_from_errno(err), "%s: %s", store->dir.path,
              err == ENOSPC || err == EDQUOT ? "too little room"
              : err == EFBIG                 ? "more than the limit on a file's size (ulimit -f)"
                                             : strerror(err));
      ct_runtime_dir_close(&store->dir);
    }
    if (turn == 1) {
      return ct_fail(diag, CT_ENOSPC,
                     "no memory of %" PRIu64 " MiB for the last events: %s; give --last a smaller size", bytes >> 20,
                     why.text);
    }
  }
  return CT_EIO;
}

int
ct_store_create(uint64_t bytes, uint64_t limit_ns, struct ct_store **out, struct ct_diag *diag)
{
  if (bytes < CT_STORE_BYTES_MIN || bytes > CT_STORE_BYTES_MAX) {
    return ct_fail(diag, CT_EINVAL, "the memory for the last events has 1 MiB to 1 TiB");
  }
  uint64_t available = memory_available();
  if (bytes > available) {
    return ct_fail(diag, CT_ENOSPC,
                   "no memory of %" PRIu64 " MiB for the last events: %" PRIu64 " MiB are free; give --last a smaller "
                   "size",
                   bytes >> 20, available >> 20);
  }
  struct ct_store *store = calloc(1, sizeof(*store));
  if (store == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  store->entries_capacity = 1024;
  store->entries = malloc(store->entries_capacity * sizeof(*store->entries));
  if (store->entries == NULL) {
    free(store);
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  int code = find_place(store, bytes - bytes % UNIT, diag);
  if (code != CT_OK) {
    free(store->entries);
    free(store);
    return code;
  }
  pthread_mutex_init(&store->lock, NULL);
  store->capacity = store->mapped_bytes - CT_STORE_HEADER_BYTES;
  store->limit_ns = limit_ns;
  store->since_ns = ct_now_ns();
  ct_store_describe(store, -1, "", 0);
  *out = store;
  return CT_OK;
}

void
ct_store_describe(struct ct_store *store, int dir_fd, const char *path, pid_t pid)
{
  struct stat dir = {0};
  struct ct_store_header *header = store->header;
  if (dir_fd >= 0 && fstat(dir_fd, &dir) != 0) {
    return;
  }
  snprintf(header->path, sizeof(header->path), "%s", path);
  header->magic = CT_STORE_MAGIC;
  header->version = CT_STORE_VERSION;
  header->capacity = store->capacity;
  header->limit_ns = store->limit_ns;
  header->device = dir.st_dev;
  header->inode = dir.st_ino;
  header->recorder = getpid();
  header->pid = pid;
  header->start_wall_ns = ct_clock_ns(CLOCK_REALTIME);
  header->header_crc = ct_crc32c(0, header, offsetof(struct ct_store_header, header_crc));
}

void
ct_store_destroy(struct ct_store *store, bool keep)
{
  if (store == NULL) {
    return;
  }
  if (!keep) {
    unlinkat(store->dir.fd, store->name, 0);
  }
  munmap(store->header, store->mapped_bytes);
  close(store->fd);
  ct_runtime_dir_close(&store->dir);
  pthread_mutex_destroy(&store->lock);
  free(store->entries);
  free(store);
}

const char *
ct_store_path(const struct ct_store *store)
{
  return store->path;
}

/* ---- records: under the lock ---- */

static struct entry *
entry_of(struct ct_store *store, uint64_t sequence)
{
  return &store->entries[sequence & (store->entries_capacity - 1)];
}

static void
drop_oldest(struct ct_store *store)
{
  const struct entry *entry = entry_of(store, store->first);
  store->first++;
  store->tail = store->first == store->next ? store->head : entry_of(store, store->first)->position;
  store->events -= entry->events;
  store->gone_events += entry->events;
  store->begin_tsc = entry->last_tsc > store->begin_tsc ? entry->last_tsc : store->begin_tsc;
  store->since_ns = entry->put_ns;
  if (entry->share != NULL) {
    entry->share->records--;
    entry->share->events -= entry->events;
    entry->share->gone_events += entry->events;
  }
  struct ct_store_header *header = store->header;
  header->begin_tsc = store->begin_tsc;
  header->gone_events = store->gone_events;
  __atomic_store_n(&header->first_sequence, store->first, __ATOMIC_RELAXED);
  /* release, and nothing after it before it: what follows the tail is written over only when all can see that */
  __atomic_store_n(&header->tail, store->tail, __ATOMIC_RELEASE);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void
drop_old(struct ct_store *store, uint64_t now)
{
  while (store->limit_ns != 0 && store->first != store->next &&
         now - entry_of(store, store->first)->put_ns > store->limit_ns) {
    drop_oldest(store);
  }
}

/* Room in the index for one more. Without memory the oldest record goes. */
static void
reserve_entry(struct ct_store *store)
{
  size_t capacity = store->entries_capacity;
  if (store->next - store->first < capacity) {
    return;
  }
  struct entry *grown = malloc(2 * capacity * sizeof(*grown));
  if (grown == NULL) {
    drop_oldest(store);
    return;
  }
  for (uint64_t n = store->first; n != store->next; n++) {
    grown[n & (2 * capacity - 1)] = *entry_of(store, n);
  }
  free(store->entries);
  store->entries = grown;
  store->entries_capacity = 2 * capacity;
}

static void
write_record(struct ct_store *store, uint64_t position, struct ct_store_record *record, const void *data)
{
  uint8_t *at = store->log + position % store->capacity;
  record->magic = CT_STORE_RECORD_MAGIC;
  record->crc = 0;
  record->crc = ct_crc32c(0, record, sizeof(*record));
  memcpy(at + sizeof(*record), data, record->data_bytes);
  memcpy(at, record, sizeof(*record));
}

/* Makes bytes free at the head, in one piece. */
static void
make_room(struct ct_store *store, uint32_t bytes)
{
  uint64_t rest = store->capacity - store->head % store->capacity, need = bytes > rest ? rest + bytes : bytes;
  while (store->head + need - store->tail > store->capacity) {
    if (store->first == store->next) { /* empty: what is free begins anew at the front */
      break;
    }
    drop_oldest(store);
  }
  if (bytes <= rest) {
    return;
  }
  if (rest >= sizeof(struct ct_store_record)) {
    struct ct_store_record skip = {.record_bytes = (uint32_t)rest, .kind = CT_STORE_SKIP, .sequence = store->next};
    write_record(store, store->head, &skip, "");
  }
  store->head += rest;
  if (store->first == store->next) {
    store->tail = store->head;
    __atomic_store_n(&store->header->tail, store->tail, __ATOMIC_RELEASE);
  }
}

void
ct_store_put(struct ct_store *store, const struct ct_store_item *item, const void *data, size_t bytes)
{
  struct ct_store_record record = {
      .record_bytes = (uint32_t)(sizeof(record) + (bytes + UNIT - 1) / UNIT * UNIT),
      .data_bytes = (uint32_t)bytes,
      .kind = item->kind,
      .thread = item->thread,
      .tid = item->tid,
      .pid = item->pid,
      .last_tsc = item->last_tsc,
      .put_tsc = __builtin_ia32_rdtsc(),
      .put_ns = ct_now_ns(),
      .events = item->events,
  };
  assert(bytes <= CT_STORE_DATA_MAX);
  snprintf(record.name, sizeof(record.name), "%s", item->name != NULL ? item->name : "");
  pthread_mutex_lock(&store->lock);
  drop_old(store, record.put_ns);
  reserve_entry(store);
  make_room(store, record.record_bytes);
  record.sequence = store->next;
  write_record(store, store->head, &record, data);
  *entry_of(store, store->next) = (struct entry){.position = store->head,
                                                 .put_ns = record.put_ns,
                                                 .last_tsc = item->last_tsc,
                                                 .share = item->share,
                                                 .record_bytes = record.record_bytes,
                                                 .events = item->events};
  store->next++;
  store->head += record.record_bytes;
  store->events += item->events;
  if (item->share != NULL) {
    item->share->records++;
    item->share->events += item->events;
  }
  /* release: the record is there before the head says so */
  __atomic_store_n(&store->header->head, store->head, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&store->lock);
}

bool
ct_store_has(struct ct_store *store, const struct ct_store_share *share)
{
  pthread_mutex_lock(&store->lock);
  bool has = share->records != 0;
  pthread_mutex_unlock(&store->lock);
  return has;
}

void
ct_store_get_state(struct ct_store *store, struct ct_store_state *state)
{
  pthread_mutex_lock(&store->lock);
  drop_old(store, ct_now_ns());
  *state = (struct ct_store_state){.capacity = store->capacity,
                                   .limit_ns = store->limit_ns,
                                   .bytes = store->head - store->tail,
                                   .events = store->events,
                                   .gone_events = store->gone_events,
                                   .begin_tsc = store->begin_tsc,
                                   .since_ns = store->since_ns,
                                   .first_sequence = store->first,
                                   .next_sequence = store->next};
  pthread_mutex_unlock(&store->lock);
}

int
ct_store_copy(struct ct_store *store, uint64_t sequence, struct ct_store_record *record, struct ct_store_buffer *buffer)
{
  int code = CT_OK;
  pthread_mutex_lock(&store->lock);
  if (sequence < store->first || sequence >= store->next) {
    code = CT_ENOENT;
  } else {
    const struct entry *entry = entry_of(store, sequence);
    const uint8_t *at = store->log + entry->position % store->capacity;
    size_t bytes = entry->record_bytes - sizeof(*record);
    uint8_t *data = buffer->capacity < bytes ? realloc(buffer->data, bytes) : buffer->data;
    if (data == NULL && bytes != 0) {
      code = CT_ENOMEM;
    } else {
      buffer->capacity = buffer->capacity < bytes ? bytes : buffer->capacity;
      buffer->data = data;
      memcpy(record, at, sizeof(*record));
      memcpy(data, at + sizeof(*record), bytes);
      record->data_bytes = record->data_bytes <= bytes ? record->data_bytes : (uint32_t)bytes;
    }
  }
  pthread_mutex_unlock(&store->lock);
  return code;
}
