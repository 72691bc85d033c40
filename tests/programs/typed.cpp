// SPDX-License-Identifier: MIT
// Members, references, and classes that are passed by their address: tests/values.py compares with gdb.
#include <cstdio>
#include <string>

#define KEPT __attribute__((noinline, noipa))
#ifdef __clang__
#undef KEPT
#define KEPT __attribute__((noinline))
#endif

static volatile long sink;

namespace space {

enum class Level : unsigned char { low, high = 200 };

struct Plain {
  int a, b;
};

struct Owner {
  explicit Owner(int number) : n(number) {}
  Owner(const Owner &other) : n(other.n + 1) {}
  ~Owner() { sink = sink + 1; }
  int n;
};

struct Holder {
  Owner inside;
};

struct Base {
  virtual ~Base() = default;
  KEPT virtual int value(int x) const { return x + base; }
  int base = 5;
};

class Member : public Base {
public:
  KEPT int add(int x, Level level) { return n += x + static_cast<int>(level); }
  KEPT static long twice(long x) { return 2 * x; }
  KEPT int value(int x) const override { return x * 2; }
  int n = 0;
};

struct Empty {};

KEPT int references(int &a, const std::string &text, Plain &&plain, std::nullptr_t)
{
  return a + static_cast<int>(text.size()) + plain.a;
}

KEPT int by_address(Owner owner, int x) { return owner.n + x; }
KEPT int holds(Holder holder, int x) { return holder.inside.n + x; }
KEPT Owner gives(int x) { return Owner(x); }
KEPT int empty(Empty, int x) { return x; }
KEPT int member_pointer(int Member::*data, int x) { return data != nullptr ? x : 0; }
template <class T> KEPT T same(T x, int y) { return x + static_cast<T>(y); }

} // namespace space

int main()
{
  using namespace space;
  Member member;
  std::string text = "some text";
  for (int i = 0; i < 3; i++) {
    sink = sink + member.add(i, i == 1 ? Level::high : Level::low) + Member::twice(i);
    Base *base = &member;
    sink = sink + base->value(i);
    sink = sink + references(i, text, Plain{i, 2}, nullptr);
    Owner owner(i);
    Holder holder{owner};
    sink = sink + by_address(owner, i) + holds(holder, i) + gives(i).n + empty(Empty(), i);
    sink = sink + member_pointer(&Member::n, i) + same<long>(i, 2) + static_cast<long>(same<double>(i, 2));
  }
  return 0;
}
