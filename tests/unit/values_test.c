/* SPDX-License-Identifier: MIT */
/* Prototypes as text and back, and values by their types: what is shown for what was in the registers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/known_calls.h"
#include "views/values.h"

static const struct ct_constant colors[] = {{"RED", 0}, {"GREEN", 2}, {"WHITE", (uint64_t)-1}};
static const struct ct_constant bits[] = {{"A", 1}, {"B", 2}, {"C", 4}};

/* Parses what stands in prototypes.tsv; enumerations 1 and 2 are the above. */
static void
parse(const char *line, char *text, struct ct_prototype *prototype)
{
  static const struct ct_constants lists[] = {{colors, 3, CT_CONSTANTS_NUMBERS, 0},
                                              {bits, 3, CT_CONSTANTS_WHOLE_SETS, 0}};
  strcpy(text, line);
  if (!ct_prototype_parse(text, prototype)) {
    fail_msg("does not parse: %s", line);
  }
  for (uint32_t i = 0; i < prototype->count; i++) {
    uint32_t number = prototype->parameters[i].type.constants_number;
    prototype->parameters[i].type.constants = number != 0 ? &lists[number - 1] : NULL;
  }
}

static void
there_and_back(void **state)
{
  static const char *const lines[] = {
      "i0 i4 - int\ti0 p8s path const char *\ti1 u4 flags unsigned int\t...",
      " v0 - void",
      "f0 f8 - double\tf0 f8 d double\tf1 f4 f float\ti0 e4u:12 e enum x",
      "i0f0 a16 - struct s\ts16 a40 big struct b\t? ?0 q strange\ti5f7 a16 - t\t a1 empty none",
  };
  for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
    struct ct_prototype prototype;
    char text[256], *again = NULL;
    size_t size;
    parse(lines[i], text, &prototype);
    FILE *out = open_memstream(&again, &size);
    assert_non_null(out);
    ct_prototype_write(out, &prototype);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(again, lines[i]);
    free(again);
  }
}

static void
not_lines(void **state)
{
  static const char *const lines[] = {
      "",
      "i0",
      "i0 i4 -",
      "i6 i4 - int",
      "f8 f8 - double",
      "q0 i4 - int",
      "i0i1i2 a16 - s",
      "i0 k4 - x",
      "i0 i - int",
      "i0 i4x - int",
      "i i4 - int",
      "i0 e4: - e",
      "i0 e4:x - e",
      "s70000 i4 - int",
      "i0 i4 - int\t",
      "i0 i4 - int\t...\ti0 i4 a int",
      "i0 i99999999999 - int",
      "i0 i4:3 - int",
  };
  for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
    struct ct_prototype prototype;
    char *text = strdup(lines[i]);
    assert_non_null(text);
    if (ct_prototype_parse(text, &prototype)) {
      fail_msg("is taken: %s", lines[i]);
    }
    free(text);
  }
}

static const char *
symbol(void *arg, uint64_t address, uint64_t *offset)
{
  *offset = address - 0x401000;
  return address >= 0x401000 && address < 0x401010 ? "compare" : NULL;
}

static size_t
memory(void *arg, uint64_t address, void *out, size_t size)
{
  static const char text[] = "a\tb\"\x1b[0m\\\xff";
  if (address == 0x9000) { /* a std::string */
    const uint64_t head[] = {0x8000, 3};
    memcpy(out, head, size < sizeof(head) ? size : sizeof(head));
    return size < sizeof(head) ? size : sizeof(head);
  }
  if (address < 0x8000 || address >= 0x8000 + sizeof(text)) {
    return 0;
  }
  size_t left = 0x8000 + sizeof(text) - address;
  memcpy(out, text + (address - 0x8000), size < left ? size : left);
  return size < left ? size : left;
}

/* The value is what the text says. Takes it. */
static void
assert_same(json_t *value, const char *text)
{
  json_t *said = json_loads(text, JSON_DECODE_ANY, NULL);
  assert_true(said != NULL && json_equal(value, said));
  json_decref(value);
  json_decref(said);
}

static void
check(const char *line, const struct ct_value_registers *registers, const char *arguments, const char *result,
      const char *json_arguments, const char *json_result)
{
  struct ct_value_context context = {NULL, symbol, memory};
  struct ct_prototype prototype;
  char text[512];
  struct ct_value_text out = {NULL, 0, 0};
  parse(line, text, &prototype);
  ct_values_put_arguments(&out, &prototype, registers, &context);
  assert_string_equal(out.data != NULL ? out.data : "", arguments);
  ct_value_text_free(&out);
  ct_values_put_result(&out, &prototype, registers, &context);
  assert_string_equal(out.data != NULL ? out.data : "", result);
  ct_value_text_free(&out);
  if (json_arguments != NULL) {
    ct_values_put_json_arguments(&out, &prototype, registers, &context);
    assert_string_equal(out.data, json_arguments);
    assert_same(ct_values_json_arguments(&prototype, registers, &context), out.data);
    ct_value_text_free(&out);
    ct_values_put_json_result(&out, &prototype, registers, &context);
    assert_string_equal(out.data, json_result);
    assert_same(ct_values_json_result(&prototype, registers, &context), out.data);
    ct_value_text_free(&out);
  }
}

static void
integers(void **state)
{
  struct ct_value_registers r = {.integers_known = 0x3f,
                                 .integers = {0xdeadbeeffffffffe, 0xffffffffffff8000, 0x1ff, 0xff41, UINT64_MAX, 0777},
                                 .results_known = 1,
                                 .results = {0xaaaaaaaa80000000}};
  check("i0 i4 - int\ti0 i4 a int\ti1 u2 b u16\ti2 b1 c bool\ti3 c1 d char\ti4 u8 e u64\ti5 u4 f mode_t", &r,
        "a=-2, b=32768, c=true?, d='A', e=18446744073709551615, f=511", " = -2147483648",
        "[{\"name\":\"a\",\"type\":\"int\",\"raw\":\"0xdeadbeeffffffffe\",\"value\":-2},"
        "{\"name\":\"b\",\"type\":\"u16\",\"raw\":\"0xffffffffffff8000\",\"value\":32768},"
        "{\"name\":\"c\",\"type\":\"bool\",\"raw\":\"0x1ff\",\"value\":true,\"text\":\"true?\"},"
        "{\"name\":\"d\",\"type\":\"char\",\"raw\":\"0xff41\",\"value\":65,\"text\":\"'A'\"},"
        "{\"name\":\"e\",\"type\":\"u64\",\"raw\":\"0xffffffffffffffff\",\"value\":\"18446744073709551615\"},"
        "{\"name\":\"f\",\"type\":\"mode_t\",\"raw\":\"0x1ff\",\"value\":511}]",
        "{\"type\":\"int\",\"raw\":\"0xaaaaaaaa80000000\",\"value\":-2147483648}");
  r.integers[3] = 0x1b;
  check(" v0 - void\ti3 c1 d char\ti0i1 i16 w __int128", &r, "d='\\x1b', w=0xffffffffffff8000deadbeeffffffffe", "",
        NULL, NULL);
}

static void
enumerations(void **state)
{
  struct ct_value_registers r = {.integers_known = 0x3f, .integers = {2, 0xffffffff, 5, 9, 0, 3}};
  check(" v0 - void\ti0 e4:1 a c\ti1 e4:1 b c\ti2 e4u:2 c b\ti3 e4u:2 d b\ti4 e4u:2 e b\ti5 e4:1 f c", &r,
        "a=GREEN, b=WHITE, c=A|C, d=9, e=0, f=3", "", NULL, NULL);
}

static void
floats(void **state)
{
  struct ct_value_registers r = {.vectors_known = 0x7, .result_vectors_known = 1};
  double values[] = {0.1, -1e300};
  float single = 0.1f;
  memcpy(r.vectors, values, sizeof(values));
  memcpy(&r.vectors[2], &single, sizeof(single));
  r.vectors[2] |= 0xdeadull << 48;
  r.result_vectors[0] = 0x7ff8000000000000;
  check("f0 f8 - double\tf0 f8 a double\tf1 f8 b double\tf2 f4 c float\tf3 f8 d double", &r,
        "a=0.1, b=-1e+300, c=0.1, ...", " = nan",
        "[{\"name\":\"a\",\"type\":\"double\",\"raw\":\"0x3fb999999999999a\",\"value\":0.1},"
        "{\"name\":\"b\",\"type\":\"double\",\"raw\":\"0xfe37e43c8800759c\",\"value\":-1e+300},"
        "{\"name\":\"c\",\"type\":\"float\",\"raw\":\"0xdead00003dcccccd\",\"value\":0.1},"
        "{\"name\":\"d\",\"type\":\"double\"}]",
        "{\"type\":\"double\",\"raw\":\"0x7ff8000000000000\",\"value\":\"nan\",\"text\":\"nan\"}");
}

static void
pointers(void **state)
{
  struct ct_value_registers r = {.integers_known = 0x3f,
                                 .integers = {0x8000, 0x401004, 0, 0x1234, 0x9000, 0x8000},
                                 .results_known = 1,
                                 .results = {UINT64_MAX}};
  check("i0 p8 - void *\ti0 p8s a char *\ti1 p8f b f\ti2 p8s c char *\ti3 p8s d char *\ti4 p8S e string &\ti5 p8 f "
        "void *",
        &r,
        "a=0x8000 \"a\\tb\\\"\\x1b[0m\\\\\\xff\", b=0x401004 <compare+0x4>, c=NULL, d=0x1234, e=0x9000 \"a\\tb\", "
        "f=0x8000",
        " = -1", NULL, NULL);
}

/* What was not recorded, or is not known. */
static void
missing(void **state)
{
  struct ct_value_registers r = {.integers_known = 0x5, .integers = {1, 2, 3}, .results_known = 1, .results = {7}};
  const char *line = "i0 i4 - int\ti0 i4 a int\ti1 i4 b int\ti2 i4 c int\ti3 i4 d int\t...";
  check(line, &r, "a=1, b=?, c=3, ...", " = 7", NULL, NULL);
  r.results_known = 0;
  check(line, &r, "a=1, b=?, c=3, ...", "",
        "[{\"name\":\"a\",\"type\":\"int\",\"raw\":\"0x1\",\"value\":1},{\"name\":\"b\",\"type\":\"int\"},"
        "{\"name\":\"c\",\"type\":\"int\",\"raw\":\"0x3\",\"value\":3},{\"name\":\"d\",\"type\":\"int\"}]",
        "{\"type\":\"int\"}");
  r = (struct ct_value_registers){.results_known = 1};
  check("f0 f8 - double\ti0 i4 a int", &r, "...", " = ?", NULL, NULL);
  check("s0 a40 - struct s\t? i4 a int", &r, "...", " = {...}", NULL, NULL);
  check(" v0 - void", &r, "", "", "[]", "{\"type\":\"void\"}");
  static const uint8_t stack[] = {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 5, 0, 0, 0};
  r.stack = stack;
  r.stack_bytes = sizeof(stack);
  check(" v0 - void\ts0 i4 a int\ts8 i4 b int\ts16 i4 c int", &r, "a=-1, b=5, ...", "", NULL, NULL);
}

/* Each line of the table parses, and what is there only for some flags is shown for these alone. */
static void
known_calls(void **state)
{
  struct ct_value_registers r = {
      .integers_known = 0x3f, .integers = {0x8000, 0x80000}, .results_known = 1, .results = {3}};
  static const struct {
    uint64_t flags;
    const char *shown;
  } opens[] = {{0, "path=0x8000, flags=O_RDONLY"},
               {0x80241, "path=0x8000, flags=O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, mode=0644"},
               {0x410002, "path=0x8000, flags=O_RDWR|O_TMPFILE, mode=0644"},
               {0x40000003, "path=0x8000, flags=0x40000003"},
               {0x40000401, "path=0x8000, flags=O_WRONLY|O_APPEND|0x40000000"}};
  struct ct_prototype prototype;
  char room[CT_KNOWN_CALL_BYTES];
  for (size_t n = 0; ct_known_call_at(n) != NULL; n++) {
    if (!ct_known_call_parse(ct_known_call_at(n), room, sizeof(room), &prototype)) {
      fail_msg("does not parse: %s", ct_known_call_at(n));
    }
  }
  assert_true(ct_known_call_parse(ct_known_call("open", true), room, sizeof(room), &prototype));
  r.integers[2] = 0644;
  for (size_t i = 0; i < sizeof(opens) / sizeof(opens[0]); i++) {
    struct ct_value_text out = {NULL, 0, 0};
    r.integers[1] = opens[i].flags;
    ct_values_put_arguments(&out, &prototype, &r, NULL);
    assert_string_equal(out.data, opens[i].shown);
    ct_value_text_free(&out);
  }
  struct ct_value_text out = {NULL, 0, 0};
  r.results[0] = 0xffffffff;
  prototype.sets_errno = true;
  r.has_error = true;
  r.error = 2;
  ct_values_put_result(&out, &prototype, &r, NULL);
  assert_string_equal(out.data, " = -1 ENOENT");
  ct_value_text_free(&out);
  assert_null(ct_known_call("memcpy", true)); /* there it is what chooses the variant */
  assert_non_null(ct_known_call("memcpy", false));
  assert_null(ct_known_call("opener", true));
  assert_ptr_equal(ct_known_call("__strlen_avx2", true), ct_known_call("strlen", false));
  assert_ptr_equal(ct_known_call("__memcpy_avx_unaligned_erms", true), ct_known_call("memcpy", false));
  assert_null(ct_known_call("__strcasecmp_l_avx2", true)); /* it takes one more */
  assert_null(ct_known_call("__memset_chk_evex", true));
}

/* A line without what only contrail reads; the name in parentheses, as it may be a macro too. */
static void
put_declaration(FILE *out, const char *line)
{
  const char *open = strchr(line, '(');
  const char *name = open;
  bool is_optional = strchr(line, '?') != NULL;
  while (name[-1] != ' ' && name[-1] != '*') {
    name--;
  }
  fprintf(out, "%.*s(%.*s)", (int)(name - line), line, (int)(open - name), name);
  for (const char *p = open; *p != '\0'; p++) {
    if (*p == ':') {
      p += 1 + strcspn(p + 1, ",?)");
      if (*p == '\0') {
        break;
      }
    }
    if (*p == ',' && is_optional && memchr(p, '?', strcspn(p + 1, ",)")) != NULL) {
      fputs(", ...", out);
      p += 1 + strcspn(p + 1, ",)");
    }
    putc(*p, out);
  }
  fputs(";\n", out);
}

/* The compiler refuses a second declaration that differs from the header's. */
static void
as_in_the_headers(void **state)
{
  static const char *const headers[] = {
      "arpa/inet.h",    "ctype.h",      "dirent.h",       "dlfcn.h",       "errno.h",        "fcntl.h",
      "getopt.h",       "locale.h",     "malloc.h",       "math.h",        "netdb.h",        "poll.h",
      "pthread.h",      "sched.h",      "semaphore.h",    "signal.h",      "spawn.h",        "stdarg.h",
      "stdio.h",        "stdlib.h",     "string.h",       "sys/epoll.h",   "sys/eventfd.h",  "sys/file.h",
      "sys/inotify.h",  "sys/ioctl.h",  "sys/mman.h",     "sys/mount.h",   "sys/prctl.h",    "sys/random.h",
      "sys/resource.h", "sys/select.h", "sys/sendfile.h", "sys/shm.h",     "sys/signalfd.h", "sys/socket.h",
      "sys/stat.h",     "sys/statfs.h", "sys/statvfs.h",  "sys/sysinfo.h", "sys/time.h",     "sys/timerfd.h",
      "sys/times.h",    "sys/uio.h",    "sys/utsname.h",  "sys/wait.h",    "time.h",         "unistd.h"};
  char path[] = "/tmp/values_test.XXXXXX.c", command[256];
  int fd = mkstemps(path, 2);
  FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
  assert_non_null(out);
  fputs("#define _GNU_SOURCE\n", out);
  for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
    fprintf(out, "#include <%s>\n", headers[i]);
  }
  for (size_t n = 0; ct_known_call_at(n) != NULL; n++) {
    put_declaration(out, ct_known_call_at(n));
  }
  assert_int_equal(fclose(out), 0);
  snprintf(command, sizeof(command), "gcc -std=gnu11 -fsyntax-only -Wall -Wno-nonnull %s", path);
  int status = system(command);
  unlink(path);
  assert_int_equal(status, 0);
}

/* What is shown of structures that calls fill in is where the headers have it. */
static void
structs_as_in_the_headers(void **state)
{
  char path[] = "/tmp/contrail-structs-XXXXXX.c", command[160];
  FILE *out = fdopen(mkstemps(path, 2), "w");
  assert_non_null(out);
  fputs("#define _GNU_SOURCE\n#include <fcntl.h>\n#include <poll.h>\n#include <pthread.h>\n#include <signal.h>\n"
        "#include <stddef.h>\n#include <sys/epoll.h>\n#include <sys/resource.h>\n#include <sys/socket.h>\n"
        "#include <sys/stat.h>\n#include <sys/statvfs.h>\n#include <sys/sysinfo.h>\n#include <sys/times.h>\n"
        "#include <sys/vfs.h>\n#include <time.h>\n",
        out);
  for (size_t n = 0; ct_known_struct_at(n) != NULL; n++) {
    const struct ct_known_struct *known = ct_known_struct_at(n);
    fprintf(out, "_Static_assert(sizeof(%s) >= %u, \"\");\n", known->name, known->bytes);
    for (const struct ct_known_member *member = known->members; member->name != NULL; member++) {
      assert_true(member->offset + member->bytes <= known->bytes && known->bytes <= CT_KNOWN_OUT_BYTES);
      if (member->name[0] != '\0') {
        fprintf(out, "_Static_assert(offsetof(%s, %s) == %u && sizeof(((%s *)0)->%s) == %u, \"\");\n", known->name,
                member->name, member->offset, known->name, member->name, member->bytes);
      } else {
        fprintf(out, "_Static_assert(%u <= sizeof(%s), \"\");\n", member->bytes, known->name);
      }
    }
  }
  assert_int_equal(fclose(out), 0);
  snprintf(command, sizeof(command), "gcc -std=gnu11 -fsyntax-only %s", path);
  int status = system(command);
  unlink(path);
  assert_int_equal(status, 0);
  /* Each call that gives something gives a number of bytes, of a register that the return knows. */
  for (size_t n = 0; ct_known_call_at(n) != NULL; n++) {
    struct ct_prototype prototype;
    char room[CT_KNOWN_CALL_BYTES];
    assert_true(ct_known_call_parse(ct_known_call_at(n), room, sizeof(room), &prototype));
    for (uint32_t i = 0; i < prototype.count; i++) {
      const struct ct_parameter *parameter = &prototype.parameters[i];
      bool fills = parameter->out != CT_OUT_NONE && parameter->place.number[0] < 4;
      if (ct_known_out_bytes(parameter) == 0 ? fills : !fills) {
        fail_msg("%s: parameter %u", ct_known_call_at(n), i);
      }
    }
  }
}

/* Nothing is there twice. */
static void
calls_once(void **state)
{
  for (size_t n = 0; ct_known_call_at(n) != NULL; n++) {
    char name[64];
    const char *end = strchr(ct_known_call_at(n), '('), *begin = end;
    while (begin[-1] != ' ' && begin[-1] != '*') {
      begin--;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(end - begin), begin);
    assert_ptr_equal(ct_known_call(name, false), ct_known_call_at(n));
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(there_and_back),
      cmocka_unit_test(not_lines),
      cmocka_unit_test(integers),
      cmocka_unit_test(enumerations),
      cmocka_unit_test(floats),
      cmocka_unit_test(pointers),
      cmocka_unit_test(missing),
      cmocka_unit_test(known_calls),
      cmocka_unit_test(as_in_the_headers),
      cmocka_unit_test(structs_as_in_the_headers),
      cmocka_unit_test(calls_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
