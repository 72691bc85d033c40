/* SPDX-License-Identifier: MIT */
/* Functions with parameters and results of all kinds, each called some times: tests/values.py compares with gdb. */
#include <complex.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define KEPT __attribute__((noinline, noipa, externally_visible))
#ifdef __clang__
#undef KEPT
#define KEPT __attribute__((noinline))
#endif

enum color { RED, GREEN = 2, BLUE, DARK = -5 };
enum bits { NONE, ONE = 1, TWO = 2, FOUR = 4 };
struct point {
  int x, y;
};
struct mixed {
  double d;
  long n;
};
struct big {
  long v[5];
};
union number {
  float f;
  uint32_t bits;
};
typedef unsigned long count_type;
typedef const char *text_type;
typedef int (*compare_type)(int, short);

static volatile long sink;

KEPT int
t_small(signed char a, unsigned char b, short c, unsigned short d, int e, unsigned f)
{
  sink += a + b + c + d + e;
  return (int)(a + b + c + d + e + (int)f);
}

KEPT count_type
t_wide(long a, count_type b, long long c, uint64_t d, int64_t e, void *f, int on_stack, unsigned long also)
{
  sink += a + on_stack;
  return b + (count_type)c + d + (count_type)e + (f != NULL) + also;
}

KEPT double
t_floats(float a, double b, int c, double d, float e, double f, double g, double h, double i, double on_stack)
{
  sink += (long)a;
  return a + b + c + d + e + f + g + h + i + on_stack;
}

KEPT float
t_half(float a)
{
  sink++;
  return a / 2;
}

KEPT enum color
t_enums(enum color a, enum bits b, bool c, char d)
{
  sink += (long)a + (long)b + c + d;
  return a;
}

static struct point table[4] = {{1, 2}, {3, 4}};
static const struct mixed constant = {2.5, 7};

KEPT int
t_data(const struct point *a, const struct mixed *b, volatile long *c)
{
  sink += a->x;
  return a->y + (int)b->n + (c == &sink);
}

KEPT bool
t_pointers(text_type text, compare_type function, const struct big *big, void *none)
{
  sink += text[0] + big->v[0];
  return function != NULL && none == NULL;
}

KEPT struct point
t_point(struct point a, int b, struct mixed c, union number d, struct point e)
{
  sink += a.x + c.n + (long)d.bits;
  return (struct point){a.x + b, a.y + e.y};
}

KEPT struct big
t_big(int a, struct big by_value, int b)
{
  sink += a + by_value.v[0];
  return (struct big){{a, b, by_value.v[1]}};
}

KEPT double complex
t_complex(double complex a, float complex b, int c)
{
  sink++;
  return a + b + c;
}

KEPT long double
t_long_double(int a, long double b, int c)
{
  sink += a + c;
  return b + a;
}

KEPT void
t_void(int a)
{
  sink += a;
}

KEPT int
t_none(void)
{
  return (int)++sink;
}

KEPT int
t_variadic(int count, const char *format, ...)
{
  sink += format[0];
  return count;
}

/* Of what only they call compilers change parameters: what is left out must not be shown as something else. */
static __attribute__((noinline)) int
t_changed(int unused, int a, int constant, int b)
{
  sink += a;
  return a * constant - b;
}

KEPT int
t_calls_changed(int a)
{
  return t_changed(7, a, 3, a + 1) + t_changed(8, a + 2, 3, a);
}

int
main(void)
{
  struct big big = {{1, 2, 3}};
  for (int i = -1; i < 3; i++) {
    t_small((signed char)-i, (unsigned char)(200 + i), (short)(i * 1000), (unsigned short)i, i * 100000, (unsigned)i);
    t_wide(-i * 5000000000, (count_type)-i, i, UINT64_MAX - (uint64_t)i, INT64_MIN, i == 0 ? NULL : &big, i, 77);
    t_floats(0.1f * (float)i, 1e300 * i, i, 2.5, 3.25f, 4, 5, 6, 7, 8.125);
    t_half((float)i);
    t_enums((enum color)(i + 1), (enum bits)(i + 3), i > 0, (char)('a' + i));
    t_data(&table[i & 3], &constant, &sink);
    t_pointers("text", i > 0 ? (compare_type)t_variadic : NULL, &big, NULL);
    t_point((struct point){i, 2}, 3, (struct mixed){0.5, i}, (union number){.bits = 5}, (struct point){4, 5});
    t_big(i, big, 9);
    t_complex(1 + 2 * I, 3, i);
    t_long_double(i, 1.5L, 3);
    t_void(i);
    t_none();
    t_variadic(i, "x", 1, 2.0);
    t_calls_changed(i);
  }
  return 0;
}
