/* SPDX-License-Identifier: MIT */
/* See <contrail/text.h>. */
#include <contrail/text.h>

#include <stdlib.h>
#include <string.h>

char *
ct_format_duration(char buf[CT_DURATION_CHARS], uint64_t ns)
{
  static const struct {
    uint64_t unit_ns;
    const char *name;
  } units[] = {{1000, "us"}, {1000000, "ms"}, {1000000000, "s"}};
  if (ns < 1000) {
    snprintf(buf, CT_DURATION_CHARS, "%u ns", (unsigned)ns);
    return buf;
  }
  /* The first of x.xxx, xx.xx, xxx.x us, ... whose four digits hold the rounded value. */
  for (size_t u = 0; u < 3; u++) {
    uint64_t step = units[u].unit_ns / 1000;
    for (int decimals = 3; decimals > 0; decimals--, step *= 10) {
      uint64_t digits = ns / step + (ns % step * 2 >= step);
      if (digits >= 10000) {
        continue;
      }
      /* All four digits, then the point goes in: "1234 us" becomes "12.34 us". */
      int point = 4 - decimals;
      snprintf(buf, CT_DURATION_CHARS, "%04u %s", (unsigned)digits, units[u].name);
      memmove(buf + point + 1, buf + point, strlen(buf + point) + 1);
      buf[point] = '.';
      return buf;
    }
  }
  snprintf(buf, CT_DURATION_CHARS, "%llu s", (unsigned long long)(ns / 1000000000));
  return buf;
}

char *
ct_format_count(char buf[CT_COUNT_CHARS], uint64_t count)
{
  char digits[24];
  int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)count);
  char *p = buf;
  for (int i = 0; i < n; i++) {
    if (i != 0 && (n - i) % 3 == 0) {
      *p++ = ',';
    }
    *p++ = digits[i];
  }
  *p = '\0';
  return buf;
}

char *
ct_format_bytes(char buf[CT_DURATION_CHARS], uint64_t bytes)
{
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    snprintf(buf, CT_DURATION_CHARS, "%u bytes", (unsigned)bytes);
    return buf;
  }
  double value = (double)bytes / 1024;
  size_t u = 0;
  while (value >= 1024 && u + 1 < sizeof(units) / sizeof(units[0])) {
    value /= 1024;
    u++;
  }
  snprintf(buf, CT_DURATION_CHARS, "%.1f %s", value, units[u]);
  return buf;
}

/* Bytes at text that form a control character: 0, 1, or 2 for U+0080 to U+009F, which terminals obey as well. */
static size_t
control_bytes(const char *text)
{
  unsigned char c = (unsigned char)text[0];
  if (c == 0xc2 && ((unsigned char)text[1] & 0xe0) == 0x80) {
    return 2;
  }
  return c < 0x20 || c == 0x7f;
}

void
ct_put_printable(FILE *out, const char *text, size_t max_bytes)
{
  for (size_t i = 0; i < max_bytes && text[i] != '\0'; i++) {
    size_t bytes = control_bytes(text + i);
    putc_unlocked(bytes != 0 ? '?' : text[i], out);
    i += bytes > 1;
  }
}

void
ct_make_printable(char *text)
{
  for (size_t bytes; *text != '\0'; text += bytes != 0 ? bytes : 1) {
    bytes = control_bytes(text);
    memset(text, '?', bytes);
  }
}

/* Length of the valid UTF-8 sequence at p (no overlongs, surrogates or values over 0x10FFFF), 0 when there is none. */
static size_t
utf8_length(const unsigned char *p)
{
  if (p[0] < 0x80) {
    return 1;
  }
  size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
  if (p[0] < 0xC2 || p[0] > 0xF4) {
    return 0;
  }
  for (size_t i = 1; i < n; i++) {
    if ((p[i] & 0xC0) != 0x80) {
      return 0;
    }
  }
  if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) ||
      (p[0] == 0xF4 && p[1] > 0x8F)) {
    return 0;
  }
  return n;
}

char *
ct_utf8_copy(const char *text)
{
  char *clean = malloc(strlen(text) * 3 + 1);
  if (clean == NULL) {
    return NULL;
  }
  char *to = clean;
  for (const unsigned char *p = (const unsigned char *)text; *p != '\0';) {
    size_t n = utf8_length(p);
    if (n == 0) {
      memcpy(to, "\xEF\xBF\xBD", 3);
      to += 3;
      p++;
    } else {
      memcpy(to, p, n);
      to += n;
      p += n;
    }
  }
  *to = '\0';
  return clean;
}
