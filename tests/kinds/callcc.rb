# SPDX-License-Identifier: MIT
# Continuations, which are copies of the stack; and fibers, which have stacks of their own.
require 'continuation'

def down(depth)
  return callcc { |k| $k = k; 0 } if depth == 0
  down(depth - 1) + 1
end

out = down(20)
$tries = ($tries || 0) + 1
$k.call($tries * 1000) if $tries < 30
p out, $tries

def choose(list)
  callcc do |ret|
    list.each { |value| callcc { |nxt| $others.push(nxt); ret.call(value) } }
    fail_here
  end
end

def fail_here
  ($others.pop or raise 'none').call
end

$others = []
a = choose((1..12).to_a)
b = choose((1..12).to_a)
c = choose((1..12).to_a)
fail_here unless a * a + b * b == c * c && b > a
p [a, b, c]

fiber = Fiber.new { 5.times { |i| Fiber.yield i }; :done }
p(6.times.map { fiber.resume })
