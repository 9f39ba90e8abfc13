! Rank 1 iterates for ever in a procedure of a module, while the others are in a barrier.
module heat
  implicit none
  logical, volatile :: freed = .false.
contains
  subroutine be_freed()
    freed = .true.
  end subroutine be_freed

  subroutine solve()
    do while (.not. freed); end do ! odd
  end subroutine solve
end module heat

program main
  use mpi
  use heat
  implicit none
  integer :: rank, code

  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call signal(10, be_freed)
  print '(a)', 'there'
  flush (6)
  if (rank == 1) call solve()
  call MPI_Barrier(MPI_COMM_WORLD, code) ! others
  print '(a)', 'result 7'
  flush (6)
  call MPI_Finalize(code)
end program main
