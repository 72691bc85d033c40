// SPDX-License-Identifier: MIT
// Threads that make garbage, exceptions, stack overflows, collections; ends with status 6.
import java.util.*;
import java.util.concurrent.*;

public class Collects {
  static class Node {
    Node next;
    byte[] data = new byte[100];
    Node(Node n) { next = n; }
  }
  static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
  static int deep(int n) { return n == 0 ? 0 : deep(n - 1) + 1; }

  static long work() {
    long sum = 0;
    for (int round = 0; round < 30; round++) {
      Node list = null;
      for (int i = 0; i < 10000; i++) {
        list = new Node(list);
        if (i % 100 == 0) list = null;
      }
      sum += fib(15);
      try {
        Object nothing = null;
        nothing.toString();
      } catch (NullPointerException e) {
        sum++;
      }
      try {
        if (round % 10 == 0) throw new IllegalStateException("round " + round);
      } catch (IllegalStateException e) {
        sum += e.getStackTrace().length > 0 ? 1 : 0;
      }
      sum += deep(1000);
    }
    return sum;
  }

  public static void main(String[] words) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(4);
    List<Future<Long>> results = new ArrayList<>();
    for (int t = 0; t < 4; t++) results.add(pool.submit(Collects::work));
    long sum = 0;
    for (Future<Long> result : results) sum += result.get();
    pool.shutdown();
    for (int i = 0; i < 5; i++) System.gc();
    int overflows = 0;
    for (int i = 0; i < 3; i++) {
      try {
        deep(100000000);
      } catch (StackOverflowError e) {
        overflows++;
      }
    }
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < 300; i++) {
      Thread thread = new Thread(() -> fib(5));
      thread.start();
      threads.add(thread);
    }
    for (Thread thread : threads) thread.join();
    Map<String, Integer> map = new TreeMap<>();
    for (int i = 0; i < 100000; i++) map.merge("key" + i % 97, 1, Integer::sum);
    System.out.println(sum + " " + overflows + " " + map.size());
    System.exit(6);
  }
}
