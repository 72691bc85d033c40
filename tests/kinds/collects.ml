(* SPDX-License-Identifier: MIT *)
(* Exceptions, garbage, threads' worth of allocation, callbacks from C; ends with status 6. *)
exception Thrown of int

let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)
let rec thrower n = if n = 0 then raise (Thrown 3) else 1 + thrower (n - 1)

let () =
  let caught = ref 0 in
  for _ = 1 to 1000 do
    try ignore (thrower 10) with Thrown k -> caught := !caught + k
  done;
  let table = Hashtbl.create 10 in
  for i = 1 to 100000 do
    Hashtbl.replace table (string_of_int (i mod 1000)) (List.init 10 (fun x -> x + i))
  done;
  Gc.full_major ();
  let sorted = List.sort compare (List.init 10000 (fun i -> i * 7919 mod 10007)) in
  Printf.printf "%d %d %d %d\n" !caught (fib 20) (Hashtbl.length table) (List.hd sorted);
  exit 6
