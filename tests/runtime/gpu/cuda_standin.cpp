// The functions of NVIDIA's driver that weft calls, with the parameters of cuda.h: each calls one in Python.
#include <cstddef>
#include <cstdint>

typedef int Result;
typedef void *Handle;
typedef uint64_t Address;

#define FUNCTION(name, parameters, arguments)                     \
    extern "C" {                                                  \
    Result(*python_##name) parameters = nullptr;                  \
    Result name parameters {                                      \
        return python_##name ? python_##name arguments : 999;     \
    }                                                             \
    }

FUNCTION(cuInit, (unsigned flags), (flags))
FUNCTION(cuGetErrorName, (Result error, const char **text), (error, text))
FUNCTION(cuGetErrorString, (Result error, const char **text), (error, text))
FUNCTION(cuDeviceGetCount, (int *count), (count))
FUNCTION(cuDeviceGet, (int *device, int ordinal), (device, ordinal))
FUNCTION(cuDeviceGetName, (char *name, int bytes, int device), (name, bytes, device))
FUNCTION(cuDeviceGetAttribute, (int *value, int attribute, int device), (value, attribute, device))
FUNCTION(cuDeviceTotalMem_v2, (size_t *bytes, int device), (bytes, device))
FUNCTION(cuDevicePrimaryCtxRetain, (Handle *context, int device), (context, device))
FUNCTION(cuCtxSetCurrent, (Handle context), (context))
FUNCTION(cuStreamCreate, (Handle *stream, unsigned flags), (stream, flags))
FUNCTION(cuStreamDestroy_v2, (Handle stream), (stream))
FUNCTION(cuStreamSynchronize, (Handle stream), (stream))
FUNCTION(cuStreamBeginCapture_v2, (Handle stream, int mode), (stream, mode))
FUNCTION(cuStreamEndCapture, (Handle stream, Handle *graph), (stream, graph))
FUNCTION(cuGraphInstantiateWithFlags, (Handle *made, Handle graph, unsigned long long flags), (made, graph, flags))
FUNCTION(cuGraphLaunch, (Handle graph, Handle stream), (graph, stream))
FUNCTION(cuGraphDestroy, (Handle graph), (graph))
FUNCTION(cuGraphExecDestroy, (Handle graph), (graph))
FUNCTION(cuMemAlloc_v2, (Address *address, size_t bytes), (address, bytes))
FUNCTION(cuMemFree_v2, (Address address), (address))
FUNCTION(cuMemcpyHtoDAsync_v2, (Address to, const void *from, size_t bytes, Handle stream), (to, from, bytes, stream))
FUNCTION(cuMemcpyDtoHAsync_v2, (void *to, Address from, size_t bytes, Handle stream), (to, from, bytes, stream))
FUNCTION(cuMemcpyDtoDAsync_v2, (Address to, Address from, size_t bytes, Handle stream), (to, from, bytes, stream))
FUNCTION(cuModuleLoadDataEx, (Handle *made, const void *image, unsigned count, int *options, void **values),
         (made, image, count, options, values))
FUNCTION(cuModuleGetFunction, (Handle *function, Handle module, const char *name), (function, module, name))
FUNCTION(cuModuleUnload, (Handle module), (module))
FUNCTION(cuFuncSetAttribute, (Handle function, int attribute, int value), (function, attribute, value))
FUNCTION(cuLaunchKernel,
         (Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
          unsigned shared, Handle stream, void **parameters, void **extra),
         (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))
FUNCTION(cuEventCreate, (Handle *event, unsigned flags), (event, flags))
FUNCTION(cuEventRecord, (Handle event, Handle stream), (event, stream))
FUNCTION(cuEventSynchronize, (Handle event), (event))
FUNCTION(cuEventElapsedTime, (float *milliseconds, Handle first, Handle last), (milliseconds, first, last))
FUNCTION(cuEventDestroy_v2, (Handle event), (event))
