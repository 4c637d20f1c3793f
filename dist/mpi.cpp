// Collectives on CPU tensors. The only file that knows MPI.
#include <voxgrad/dist/engine.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <iterator>

#if VOXGRAD_HAS_MPI
#include <mpi.h>
#endif

namespace vox::dist::mpi {

bool is_launcher() {
  // Open MPI; PMIx, as with srun; MPICH and its relatives.
  const char* const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  return std::any_of(std::begin(variables), std::end(variables),
                     [](const char* v) { return std::getenv(v); });
}

#if VOXGRAD_HAS_MPI

namespace {

MPI_Comm communicator = MPI_COMM_NULL;  // ours, so that the program may use MPI itself
bool we_initialised = false;

/// MPI has no 16-bit floating types. An op of our own adds, as NCCL does, in f32, and rounds each sum.
template <class T, Reduce reduce>
void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  const T* a = static_cast<const T*>(in);
  T* b = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i) {
    const float x = a[i], y = b[i];
    b[i] = T(reduce == Reduce::sum ? x + y : reduce == Reduce::max ? std::max(x, y) : std::min(x, y));
  }
}

template <class T>
MPI_Op op_of(Reduce reduce) {
  static const auto make = [](MPI_User_function* function) {
    MPI_Op op = MPI_OP_NULL;
    MPI_Op_create(function, 1, &op);
    return op;
  };
  static const MPI_Op sum = make(combine<T, Reduce::sum>), max = make(combine<T, Reduce::max>),
                      min = make(combine<T, Reduce::min>);
  return reduce == Reduce::sum ? sum : reduce == Reduce::max ? max : min;
}

MPI_Op op_of(DType dtype, Reduce reduce) {
  if (dtype == bf16) return op_of<bfloat16>(reduce);
  if (dtype == f16) return op_of<float16>(reduce);
  return reduce == Reduce::sum ? MPI_SUM : reduce == Reduce::max ? MPI_MAX : MPI_MIN;
}

MPI_Datatype type_of(DType dtype) {
  const MPI_Datatype types[] = {MPI_FLOAT,    MPI_DOUBLE,   MPI_INT64_T,  MPI_UINT8_T,  MPI_UINT8_T,
                                MPI_UINT16_T, MPI_UINT16_T, MPI_UINT16_T, MPI_UINT16_T, MPI_INT32_T};
  static_assert(std::size(types) == static_cast<size_t>(i32) + 1);  // a new dtype needs a type
  return types[static_cast<int>(dtype)];
}

/// A call that has begun. If it fails before it is done it is never deleted: MPI may still write to its
/// tensors.
struct Pending {
  Collective collective;
  MPI_Request request = MPI_REQUEST_NULL;
};

}  // namespace

Place init(double seconds) {
  const Alarm alarm("init: MPI_Init did not return: a rank does not call init(), or has ended", seconds);
  int initialised = 0, provided = 0;
  MPI_Initialized(&initialised);
  if (!initialised) MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  we_initialised = !initialised;
  MPI_Query_thread(&provided);
  check<DistError>(
      provided >= MPI_THREAD_SERIALIZED,
      "init: MPI must allow calls from several threads, one at a time; call MPI_Init_thread with "
      "MPI_THREAD_SERIALIZED before init(), or leave it to init()");
  MPI_Comm_dup(MPI_COMM_WORLD, &communicator);

  Place place;
  MPI_Comm_rank(communicator, &place.rank);
  MPI_Comm_size(communicator, &place.size);
  MPI_Comm machine = MPI_COMM_NULL;
  int machine_size = 0;
  MPI_Comm_split_type(communicator, MPI_COMM_TYPE_SHARED, place.rank, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &place.local_rank);
  MPI_Comm_size(machine, &machine_size);
  MPI_Comm_free(&machine);
  if (machine_size < place.size) {
    char host[MPI_MAX_PROCESSOR_NAME + 1] = {};
    int length = 0;
    MPI_Get_processor_name(host, &length);
    MPI_Bcast(host, sizeof host, MPI_CHAR, 0, communicator);
    place.host = host;
  }
  return place;
}

int from_rank_0(int number) {
  MPI_Bcast(&number, 1, MPI_INT, 0, communicator);
  return number;
}

Poll start(const Collective& c) {
  const int64_t size = c.kind == Collective::Kind::reduce_scatter ? c.output.numel() : c.input.numel();
  check<ValueError>(size <= INT_MAX, c.description(), ": MPI moves at most 2^31 - 1 elements in one call");
  const int count = static_cast<int>(size);
  const MPI_Datatype type = type_of(c.input.dtype());
  void* const in = c.input.impl()->data();
  void* const out = c.output.impl()->data();
  const std::shared_ptr<Pending> pending(new Pending{c}, [](Pending* p) {
    if (p->request == MPI_REQUEST_NULL) delete p;
  });
  MPI_Request* const request = &pending->request;
  switch (c.kind) {
    case Collective::Kind::all_reduce:
      MPI_Iallreduce(in == out ? MPI_IN_PLACE : in, out, count, type, op_of(c.input.dtype(), c.reduce),
                     communicator, request);
      break;
    case Collective::Kind::broadcast:
      MPI_Ibcast(out, count, type, c.root, communicator, request);
      break;
    case Collective::Kind::all_gather:
      MPI_Iallgather(in, count, type, out, count, type, communicator, request);
      break;
    case Collective::Kind::reduce_scatter:
      MPI_Ireduce_scatter_block(in, out, count, type, op_of(c.input.dtype(), c.reduce), communicator,
                                request);
      break;
  }
  return [pending] {
    int done = 0;
    MPI_Test(&pending->request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  };
}

void finalize(double seconds) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;  // by the program, which uses MPI itself
  const Alarm alarm("MPI_Finalize did not return", seconds);
  MPI_Comm_free(&communicator);
  if (we_initialised) MPI_Finalize();
}

#else

namespace {
[[noreturn]] void refuse() {
  throw DistError(
      "init: mpirun started this program, but voxgrad was built without MPI (install libopenmpi-dev "
      "and configure again with VOXGRAD_DIST=ON)");
}
}  // namespace

Place init(double) { refuse(); }
int from_rank_0(int) { refuse(); }
Poll start(const Collective&) { refuse(); }
void finalize(double) {}

#endif

}  // namespace vox::dist::mpi
