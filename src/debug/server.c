/* SPDX-License-Identifier: MIT */
/*
 * The protocol ("Remote Serial Protocol" in gdb's manual): one packet, one answer. The thread that is recorded is the
 * only one. What gdb may not do here (write, run) is answered by an error; what is not known here is answered by
 * nothing.
 */
#include <contrail/debug.h>

#include "base/sized.h"
#include "base/test_point.h"
#include "debug/packet.h"
#include "debug/registers.h"
#include "debug/tape.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILES_MAX = 16, PREAD_MAX = 0x3000, STARTS_WITH = sizeof("steps.") - 1 };

struct ct_debug {
  struct ct_tape tape;
  uint32_t tid;
  struct ct_packets packets;
  struct ct_waiting waiting;
  void (*note)(void *context, const char *line); /* NULL: not */
  void *note_context;
  uint64_t unknown;     /* bytes of the search that goes on */
  uint64_t search_next; /* from where on gdb asks on: from after the match */
  int files[FILES_MAX]; /* that gdb has opened: descriptors, 0: none */
  /* The answer that is being written. */
  char *text;
  size_t size;
  FILE *out;
};

/* ---- which file ---- */

/* The only steps.TID of the folder, or that of the thread. */
static int
find_steps(const char *folder, uint32_t tid, char *path, size_t size, struct ct_diag *diag)
{
  DIR *stream = opendir(folder);
  unsigned found = 0;
  if (stream == NULL) {
    return ct_fail(diag, ct_err_from_errno(errno), "%s: %s", folder, strerror(errno));
  }
  for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
    char *end;
    if (strncmp(entry->d_name, "steps.", STARTS_WITH) != 0) {
      continue;
    }
    uint64_t number = strtoull(entry->d_name + STARTS_WITH, &end, 10);
    if (*end == 0 && end != entry->d_name + STARTS_WITH && (tid == 0 || number == tid)) {
      snprintf(path, size, "%s/%s", folder, entry->d_name);
      found++;
    }
  }
  closedir(stream);
  return found == 1  ? 0
         : found > 1 ? ct_fail(diag, CT_ERANGE, "%s has the steps of %u threads: which one (--thread)?", folder, found)
                     : ct_fail(diag, CT_ERANGE, "%s has no recorded instructions%s", folder,
                               tid != 0 ? " of that thread" : " (see contrail itrace)");
}

/* The file of the steps that a path leads to. */
static int
find_file(const char *path, uint32_t tid, char *file, size_t size, struct ct_diag *diag)
{
  struct stat info;
  if (stat(path, &info) != 0) {
    return ct_fail(diag, ct_err_from_errno(errno), "%s: %s", path, strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) {
    return find_steps(path, tid, file, size, diag);
  }
  snprintf(file, size, "%s", path);
  return 0;
}

/* Tests make a long question of a short one. */
static void
take_long(void)
{
  uint64_t ns = ct_test_duration_ns("CONTRAIL_TEST_DEBUG_ANSWER_MS", 0);
  struct timespec time = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
  nanosleep(&time, NULL);
}

static int
open_tape(struct ct_debug *debug, const char *file, const struct ct_debug_options *options, struct ct_diag *diag)
{
  take_long();
  int code = ct_tape_open(file, &debug->tape, diag);
  if (code != 0) {
    return code;
  }
  if (options->has_step && options->step > debug->tape.steps) {
    code = ct_fail(diag, CT_ERANGE, "it has %" PRIu64 " steps", debug->tape.steps);
    ct_tape_close(&debug->tape);
    return code;
  }
  debug->tid = (uint32_t)ct_steps_reader_head(debug->tape.reader)->tid;
  if (options->has_step) {
    ct_tape_go(&debug->tape, options->step);
  }
  return 0;
}

int
ct_debug_open(const char *path, const struct ct_debug_options *given, struct ct_debug **out, struct ct_diag *diag)
{
  struct ct_debug_options options = {.struct_size = sizeof(options)};
  char file[PATH_MAX];
  int code = ct_sized_take(&options, sizeof(options), given, diag);
  if (code != 0) {
    return code;
  }
  code = find_file(path, options.tid, file, sizeof(file), diag);
  if (code != 0) {
    return code;
  }
  struct ct_debug *debug = calloc(1, sizeof(*debug));
  if (debug == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  if (options.out != 0) {
    ct_waiting_begin(&debug->waiting, options.out);
  }
  code = open_tape(debug, file, &options, diag);
  if (code != 0) {
    goto free_debug;
  }
  debug->note = options.note;
  debug->note_context = options.note_context;
  *out = debug;
  return 0;
free_debug:
  ct_waiting_end(&debug->waiting);
  free(debug);
  return code;
}

const char *
ct_debug_damage(const struct ct_debug *debug)
{
  return ct_steps_reader_damage(debug->tape.reader);
}

void
ct_debug_close(struct ct_debug *debug)
{
  if (debug != NULL) {
    ct_waiting_end(&debug->waiting);
    for (int i = 0; i < FILES_MAX; i++) {
      if (debug->files[i] != 0) {
        close(debug->files[i]);
      }
    }
    ct_tape_close(&debug->tape);
    free(debug);
  }
}

/* ---- words of packets ---- */

static bool
begins(const char **at, const char *word)
{
  size_t length = strlen(word);
  bool good = strncmp(*at, word, length) == 0;
  *at += good ? length : 0;
  return good;
}

static bool
number(const char **at, uint64_t *value)
{
  char *end;
  if (!((**at >= '0' && **at <= '9') || (**at >= 'a' && **at <= 'f') || (**at >= 'A' && **at <= 'F'))) {
    return false;
  }
  errno = 0;
  *value = strtoull(*at, &end, 16);
  *at = end;
  return errno == 0;
}

static bool
comma(const char **at)
{
  bool good = **at == ',';
  *at += good;
  return good;
}

static void
put_hex(const uint8_t *bytes, size_t size, FILE *out)
{
  for (size_t i = 0; i < size; i++) {
    fprintf(out, "%02x", bytes[i]);
  }
}

/* ---- stops ---- */

static void
put_stop(struct ct_debug *debug, enum ct_tape_end end)
{
  const struct ct_tape *tape = &debug->tape;
  bool died = tape->at == tape->steps && tape->signal != 0;
  fprintf(debug->out, "T%02xthread:%x;",
          end == CT_TAPE_INTERRUPTED ? 2u
          : died                     ? (unsigned)tape->signal
                                     : 5u,
          debug->tid);
  if (end == CT_TAPE_AT_BEGIN || (end == CT_TAPE_AT_END && !died)) {
    fprintf(debug->out, "replaylog:%s;", end == CT_TAPE_AT_BEGIN ? "begin" : "end");
  } else if (end == CT_TAPE_STOPPED && tape->hit != NULL) {
    static const char *const names[] = {
        [CT_TAPE_WRITTEN] = "watch", [CT_TAPE_READ] = "rwatch", [CT_TAPE_ACCESSED] = "awatch"};
    fprintf(debug->out, "%s:%" PRIx64 ";", names[tape->hit->kind], tape->hit->address);
  }
}

static bool
is_asked(void *context)
{
  return ct_packet_interrupted(context);
}

static void
go(struct ct_debug *debug, bool steps, bool back)
{
  struct ct_tape *tape = &debug->tape;
  tape->is_asked = is_asked;
  tape->context = &debug->packets;
  put_stop(debug, steps ? ct_tape_step(tape, back) : ct_tape_continue(tape, back));
}

/* Z and z: KIND,ADDRESS,SIZE. */
static void
set_stop(struct ct_debug *debug, const char *at, bool adds)
{
  uint64_t kind, address, size;
  if (!number(&at, &kind) || !comma(&at) || !number(&at, &address) || !comma(&at) || !number(&at, &size) || kind > 4) {
    fputs("E01", debug->out);
    return;
  }
  struct ct_tape_stop stop = {.kind = kind < 2 ? CT_TAPE_BREAK : (enum ct_tape_kind)(kind - 1),
                              .address = address,
                              .size = kind < 2 ? 0 : size};
  bool done = adds ? ct_tape_add(&debug->tape, &stop) : ct_tape_remove(&debug->tape, &stop);
  fputs(done || !adds ? "OK" : "E0c", debug->out);
}

/* ---- memory ---- */

static void
read_memory(struct ct_debug *debug, const char *at)
{
  uint64_t address, size;
  uint8_t bytes[4096];
  if (!number(&at, &address) || !comma(&at) || !number(&at, &size)) {
    fputs("E01", debug->out);
    return;
  }
  size = size < sizeof(bytes) ? size : sizeof(bytes);
  size_t known = ct_tape_memory(&debug->tape, address, bytes, size);
  if (known == 0) {
    fputs("E0e", debug->out);
    return;
  }
  put_hex(bytes, known, debug->out);
}

/* gdb asks on from after each match, up to where there is no room for another one: that is the end of its search. */
static void
note_unknown(struct ct_debug *debug, uint64_t address, uint64_t bytes, size_t size, const struct ct_tape_found *found)
{
  debug->unknown = (address == debug->search_next ? debug->unknown : 0) + found->unknown;
  debug->search_next = found->has_address ? found->address + 1 : 0;
  bool is_last = !found->has_address || bytes - (found->address - address) <= size;
  if (is_last && debug->unknown != 0 && debug->note != NULL) {
    char line[160];
    snprintf(line, sizeof(line), "find: %" PRIu64 " of these bytes are not known here: a match may begin there",
             debug->unknown);
    debug->note(debug->note_context, line);
  }
  debug->unknown = is_last ? 0 : debug->unknown;
}

/* qSearch:memory:ADDRESS;BYTES;PATTERN, the pattern as it is. */
static void
search_memory(struct ct_debug *debug, const char *at)
{
  uint64_t address, bytes;
  struct ct_tape_found found;
  const char *end = debug->packets.packet + debug->packets.length;
  debug->tape.is_asked = is_asked;
  debug->tape.context = &debug->packets;
  take_long();
  if (!number(&at, &address) || *at++ != ';' || !number(&at, &bytes) || *at++ != ';' ||
      !ct_tape_find(&debug->tape, address, bytes, (const uint8_t *)at, (size_t)(end - at), &found)) {
    fputs("E01", debug->out);
    return;
  }
  if (found.has_address) {
    fprintf(debug->out, "1,%" PRIx64, found.address);
  } else {
    fputc('0', debug->out);
  }
  note_unknown(debug, address, bytes, (size_t)(end - at), &found);
}

/* ---- documents: qXfer:OBJECT:read:ANNEX:OFFSET,LENGTH ---- */

static void
write_document(struct ct_debug *debug, const char *object, FILE *out)
{
  const struct ct_image_file *program = ct_image_program(&debug->tape.image);
  if (strcmp(object, "features") == 0) {
    ct_registers_describe(out);
  } else if (strcmp(object, "libraries-svr4") == 0) {
    ct_image_libraries(&debug->tape.image, out);
  } else if (strcmp(object, "auxv") == 0) {
    ct_image_auxv(&debug->tape.image, out);
  } else if (strcmp(object, "exec-file") == 0) {
    fputs(program != NULL ? program->path : "", out);
  } else if (strcmp(object, "threads") == 0) {
    fprintf(out, "<?xml version=\"1.0\"?><threads><thread id=\"%x\" core=\"0\"/></threads>", debug->tid);
  }
}

static void
transfer(struct ct_debug *debug, const char *at)
{
  char object[32] = "", *text = NULL;
  uint64_t offset, length;
  size_t size = 0;
  const char *colon = strchr(at, ':');
  if (colon == NULL || (size_t)(colon - at) >= sizeof(object)) {
    return;
  }
  memcpy(object, at, (size_t)(colon - at));
  at = colon + 1;
  const char *last = strrchr(at, ':');
  if (!begins(&at, "read:") || last == NULL || last < at - 1) {
    return;
  }
  last++;
  if (!number(&last, &offset) || !comma(&last) || !number(&last, &length)) {
    fputs("E01", debug->out);
    return;
  }
  FILE *out = open_memstream(&text, &size);
  if (out == NULL) {
    fputs("E0c", debug->out);
    return;
  }
  write_document(debug, object, out);
  if (fclose(out) == 0 && size != 0) {
    length = length < CT_PACKET_MAX / 4 ? length : CT_PACKET_MAX / 4;
    size_t left = offset < size ? size - (size_t)offset : 0;
    fputc(left > length ? 'm' : 'l', debug->out);
    fwrite(text + (left != 0 ? offset : 0), 1, left < length ? left : (size_t)length, debug->out);
  }
  free(text);
}

/* ---- files, which gdb reads through us: vFile ---- */

static void
open_file(struct ct_debug *debug, const char *at)
{
  char path[PATH_MAX];
  size_t length = 0;
  for (unsigned byte; length + 1 < sizeof(path) && sscanf(at, "%2x", &byte) == 1; at += 2) {
    path[length++] = (char)byte;
  }
  path[length] = 0;
  for (int i = 0; i < FILES_MAX; i++) {
    if (debug->files[i] == 0) {
      int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
      if (fd < 0) {
        fputs("F-1,2", debug->out);
        return;
      }
      debug->files[i] = fd;
      fprintf(debug->out, "F%x", i + 1);
      return;
    }
  }
  fputs("F-1,18", debug->out);
}

/* As the protocol has it: numbers of big end, 4 and 8 bytes. */
static void
put_status(int fd, FILE *out)
{
  struct stat info;
  uint8_t bytes[64] = {0};
  if (fstat(fd, &info) != 0) {
    fputs("F-1,9", out);
    return;
  }
  const struct {
    uint8_t at, size;
    uint64_t value;
  } fields[] = {{4, 4, info.st_ino},
                {8, 4, S_IFREG | 0555},
                {12, 4, 1},
                {28, 8, (uint64_t)info.st_size},
                {36, 8, 4096},
                {44, 8, (uint64_t)info.st_blocks},
                {60, 4, (uint64_t)info.st_mtime}};
  for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
    for (unsigned k = 0; k < fields[i].size; k++) {
      bytes[fields[i].at + k] = (uint8_t)(fields[i].value >> 8 * (fields[i].size - 1 - k));
    }
  }
  fprintf(out, "F%zx;", sizeof(bytes));
  fwrite(bytes, 1, sizeof(bytes), out);
}

static void
read_file(int fd, const char *at, FILE *out)
{
  uint64_t count, offset;
  static uint8_t bytes[PREAD_MAX];
  if (!comma(&at) || !number(&at, &count) || !comma(&at) || !number(&at, &offset)) {
    fputs("F-1,16", out);
    return;
  }
  ssize_t got = pread(fd, bytes, count < sizeof(bytes) ? count : sizeof(bytes), (off_t)offset);
  if (got < 0) {
    fputs("F-1,5", out);
    return;
  }
  fprintf(out, "F%zx;", (size_t)got);
  fwrite(bytes, 1, (size_t)got, out);
}

static void
file_packet(struct ct_debug *debug, const char *at)
{
  uint64_t handle = 0;
  if (begins(&at, "setfs:")) {
    fputs("F0", debug->out);
    return;
  }
  if (begins(&at, "open:")) {
    open_file(debug, at);
    return;
  }
  bool reads = begins(&at, "pread:"), closes = !reads && begins(&at, "close:");
  bool asks = !reads && !closes && begins(&at, "fstat:");
  if (!reads && !closes && !asks) {
    return;
  }
  if (!number(&at, &handle) || handle == 0 || handle > FILES_MAX || debug->files[handle - 1] == 0) {
    fputs("F-1,9", debug->out);
  } else if (reads) {
    read_file(debug->files[handle - 1], at, debug->out);
  } else if (asks) {
    put_status(debug->files[handle - 1], debug->out);
  } else {
    close(debug->files[handle - 1]);
    debug->files[handle - 1] = 0;
    fputs("F0", debug->out);
  }
}

/* ---- packets ---- */

static void
query(struct ct_debug *debug, const char *at)
{
  static const char supported[] =
      "PacketSize=%x;QStartNoAckMode+;ReverseStep+;ReverseContinue+;swbreak+;hwbreak+;vContSupported+;"
      "qXfer:features:read+;qXfer:exec-file:read+;qXfer:libraries-svr4:read+;qXfer:auxv:read+;qXfer:threads:read+";
  FILE *out = debug->out;
  if (begins(&at, "Supported")) {
    fprintf(out, supported, CT_PACKET_MAX - 1u);
  } else if (begins(&at, "Xfer:")) {
    transfer(debug, at);
  } else if (begins(&at, "Search:memory:")) {
    search_memory(debug, at);
  } else if (begins(&at, "fThreadInfo")) {
    fprintf(out, "m%x", debug->tid);
  } else if (begins(&at, "sThreadInfo")) {
    fputc('l', out);
  } else if (begins(&at, "ThreadExtraInfo,")) {
    char text[64];
    int length = snprintf(text, sizeof(text), "step %" PRIu64 " of %" PRIu64, debug->tape.at, debug->tape.steps);
    put_hex((const uint8_t *)text, (size_t)length, out);
  } else if (begins(&at, "Attached")) {
    fputc('1', out);
  } else if (strcmp(at, "C") == 0) {
    fprintf(out, "QC%x", debug->tid);
  } else if (begins(&at, "Symbol")) {
    fputs("OK", out);
  } else if (begins(&at, "TStatus")) {
    return;
  }
}

static void
v_packet(struct ct_debug *debug, const char *at)
{
  if (begins(&at, "File:")) {
    file_packet(debug, at);
  } else if (begins(&at, "Cont?")) {
    fputs("vCont;c;C;s;S", debug->out);
  } else if (begins(&at, "Cont;")) {
    go(debug, *at == 's' || *at == 'S', false);
  } else if (begins(&at, "Kill")) {
    fputs("OK", debug->out);
  } else if (begins(&at, "Run") || begins(&at, "Attach")) {
    fputs("E01", debug->out);
  }
}

static void
one_register(struct ct_debug *debug, const char *at)
{
  uint64_t which;
  if (!number(&at, &which) || which > UINT16_MAX ||
      !ct_register_put(ct_tape_state(&debug->tape), (unsigned)which, debug->out)) {
    fputs("E01", debug->out);
  }
}

/* False: the debugger has done. */
static bool
answer(struct ct_debug *debug)
{
  const char *at = debug->packets.packet, first = *at;
  at += first != 0;
  switch (first) {
  case '?':
    put_stop(debug, CT_TAPE_STEPPED);
    break;
  case 'g':
    ct_registers_put(ct_tape_state(&debug->tape), debug->out);
    break;
  case 'p':
    one_register(debug, at);
    break;
  case 'm':
    read_memory(debug, at);
    break;
  case 'G':
  case 'P':
  case 'M':
  case 'X':
    fputs("E01", debug->out);
    break;
  case 'H':
  case 'T':
  case '!':
    fputs("OK", debug->out);
    break;
  case 's':
  case 'S':
  case 'c':
  case 'C':
    go(debug, first == 's' || first == 'S', false);
    break;
  case 'b':
    if (*at == 's' || *at == 'c') {
      go(debug, *at == 's', true);
    }
    break;
  case 'Z':
  case 'z':
    set_stop(debug, at, first == 'Z');
    break;
  case 'q':
    query(debug, at);
    break;
  case 'v':
    v_packet(debug, at);
    break;
  case 'D':
    fputs("OK", debug->out);
    return false;
  case 'k':
    return false;
  default:
    break;
  }
  return true;
}

/* Does gdb wait for the answer as long as it takes? It then takes nothing but the answer. */
static bool
resumes(const char *packet)
{
  const char *at = packet;
  return (packet[0] != 0 && strchr("cCsSb", packet[0]) != NULL) || begins(&at, "vCont;");
}

/* Of the packet, or the interrupt. False: the debugger has done. */
static bool
make_answer(struct ct_debug *debug, enum ct_packet_kind kind)
{
  if (kind == CT_PACKET_INTERRUPT) {
    put_stop(debug, CT_TAPE_INTERRUPTED);
    return true;
  }
  if (strcmp(debug->packets.packet, "QStartNoAckMode") == 0) {
    fputs("OK", debug->out);
    return true;
  }
  ct_waiting_set(&debug->waiting, !resumes(debug->packets.packet));
  bool goes_on = answer(debug);
  ct_waiting_set(&debug->waiting, false);
  return goes_on;
}

void
ct_debug_serve(struct ct_debug *debug, int in, int out)
{
  bool goes_on = true;
  if (debug->waiting.out != out) {
    ct_waiting_end(&debug->waiting);
    ct_waiting_begin(&debug->waiting, out);
  }
  ct_waiting_set(&debug->waiting, false);
  ct_packets_begin(&debug->packets, in, out);
  while (goes_on) {
    enum ct_packet_kind kind = ct_packet_take(&debug->packets);
    if (kind == CT_PACKET_GONE) {
      break;
    }
    debug->out = open_memstream(&debug->text, &debug->size);
    if (debug->out == NULL) {
      break;
    }
    bool quiet = kind == CT_PACKET_TAKEN && strcmp(debug->packets.packet, "QStartNoAckMode") == 0;
    bool is_last_word = kind == CT_PACKET_TAKEN && debug->packets.packet[0] == 'k';
    goes_on = make_answer(debug, kind);
    goes_on = fclose(debug->out) == 0 && goes_on;
    bool sent = is_last_word || ct_packet_put(&debug->packets, debug->text, debug->size);
    free(debug->text);
    debug->packets.acknowledges = debug->packets.acknowledges && !quiet;
    goes_on = goes_on && sent;
  }
  ct_waiting_end(&debug->waiting);
  debug->waiting.out = 0;
}
