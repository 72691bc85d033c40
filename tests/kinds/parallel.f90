! SPDX-License-Identifier: MIT
! OpenMP, quadruple precision, complex numbers, formatted output; ends with status 9.
module numbers
contains
  recursive integer function fib(n) result(r)
    integer, intent(in) :: n
    if (n < 2) then
      r = n
    else
      r = fib(n - 1) + fib(n - 2)
    end if
  end function
end module
program parallel
  use numbers
  real(16) :: root
  complex(8) :: z
  integer :: i, s
  character(len=20) :: text
  s = 0
!$omp parallel do reduction(+:s)
  do i = 1, 1000
    s = s + fib(mod(i, 12))
  end do
  root = sqrt(2.0_16)
  z = exp((1.0d0, 2.0d0))
  write(text, '(f12.8)') root
  print *, s, text, z
  call exit(9)
end program
