! Each rank of a ring receives before it sends. It can only be killed.
module ring
  use mpi
  implicit none
contains
  subroutine shift(rank, ranks)
    integer, intent(in) :: rank, ranks
    integer :: message, code

    call MPI_Recv(message, 1, MPI_INTEGER, modulo(rank - 1, ranks), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code) ! others
    call MPI_Send(rank, 1, MPI_INTEGER, modulo(rank + 1, ranks), 0, MPI_COMM_WORLD, code)
  end subroutine shift
end module ring

program main
  use mpi
  use ring
  implicit none
  integer :: rank, ranks, code

  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)
  print '(a)', 'there'
  flush (6)
  call shift(rank, ranks)
  call MPI_Finalize(code)
end program main
