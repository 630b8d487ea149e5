set(BACKEND_SOURCES
  src/backend/backend.c
  src/backend/device.c
  src/backend/fuse.c
  src/backend/lead.c
  src/backend/op_fields.c
  src/backend/ops.c
  src/backend/plan.c
  src/backend/split/cut.c
  src/backend/split/place.c
  src/backend/split/split.c
  src/backend/split/split_run.c
  src/backend/split/tally.c
  src/backend/trace/trace.c
  src/backend/xla/emit.c
  src/backend/xla/emit_attn.c
  src/backend/xla/emit_elem.c
  src/backend/xla/emit_moe.c
  src/backend/xla/emit_recur.c
  src/backend/xla/emit_rows.c
  src/backend/xla/find.c
  src/backend/xla/hlo.c
  src/backend/xla/pjrt.c
  src/backend/xla/xla.c
  src/backend/xla/xla_cache.c
  src/backend/xla/xla_device.c
  src/backend/xla/xla_memory.c
  src/backend/xla/xla_program.c
  src/backend/xla/xla_run.c
  src/backend/cuda/cuda.c
  src/backend/cuda/fuse_cuda.c
  src/backend/cuda/paths.c
  src/backend/cuda/run.c
  src/backend/cuda/select.c
  src/backend/cuda/context/borrow.c
  src/backend/cuda/context/borrow_kv.c
  src/backend/cuda/context/choose.c
  src/backend/cuda/context/context.c
  src/backend/cuda/context/given.c
  src/backend/cuda/context/kv.c
  src/backend/cuda/context/memory.c
  src/backend/cuda/context/part.c
  src/backend/cuda/context/ranks.c
  src/backend/cuda/context/ranks_nccl.c
  src/backend/cuda/context/step.c
  src/backend/cuda/context/weight.c
  src/backend/cuda/decode/attention.c
  src/backend/cuda/decode/experts.c
  src/backend/cuda/decode/latent.c
  src/backend/cuda/decode/graph.c
  src/backend/cuda/decode/instr.c
  src/backend/cuda/decode/links.c
  src/backend/cuda/decode/product.c
  src/backend/cuda/decode/rows.c
  src/backend/cuda/device/arch.c
  src/backend/cuda/device/driver.c
  src/backend/cuda/device/embedded.c
  src/backend/cuda/device/gpu.c
  src/backend/cuda/device/image.c
  src/backend/cuda/device/module.c
  src/backend/cuda/device/nccl.c
  src/backend/cuda/device/nccl_library.c
  src/backend/cuda/device/plan_gpu.c
  src/backend/cuda/device/probe.c
  src/backend/cuda/device/support.c
  src/backend/cuda/lower/emit.c
  src/backend/cuda/lower/lower_adapt.c
  src/backend/cuda/lower/lower_batch.c
  src/backend/cuda/lower/lower_bytes.c
  src/backend/cuda/lower/lower_borrow.c
  src/backend/cuda/lower/lower_choose.c
  src/backend/cuda/lower/lower_elem.c
  src/backend/cuda/lower/lower_experts.c
  src/backend/cuda/lower/lower_gemm.c
  src/backend/cuda/lower/lower_linear.c
  src/backend/cuda/lower/lower_mix.c
  src/backend/cuda/lower/lower_part.c
  src/backend/cuda/lower/lower_ranks.c
  src/backend/cuda/lower/lower_rows.c
  src/backend/cuda/lower/pattern.c
  src/backend/cuda/lower/split_wide.c
  src/backend/cpu/cpu.c
  src/backend/cpu/cpu_adapt.c
  src/backend/cpu/cpu_device.c
  src/backend/cpu/cpu_attn.c
  src/backend/cpu/cpu_attn_half.c
  src/backend/cpu/cpu_attn_packed.c
  src/backend/cpu/cpu_elem.c
  src/backend/cpu/cpu_head.c
  src/backend/cpu/cpu_heads.c
  src/backend/cpu/cpu_linear.c
  src/backend/cpu/cpu_moe.c
  src/backend/cpu/cpu_moe_panels.c
  src/backend/cpu/cpu_ranks.c
  src/backend/cpu/cpu_recur.c
  src/backend/cpu/cpu_rope.c
  src/backend/cpu/cpu_rows.c
  src/backend/cpu/cpu_rows_half.c
  src/backend/cpu/cpu_weight.c
  src/backend/cpu/kern.c
  src/backend/cpu/kern_kv_ref.c
  src/backend/cpu/kern_ref.c
  src/backend/cpu/pack.c
  src/backend/cpu/pack_nested.c
  src/backend/cpu/pack_plain.c
  src/backend/cpu/pool.c
  src/backend/cpu/row.c
  src/backend/cpu/tune.c
)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND BACKEND_SOURCES src/backend/cpu/kern_avx2.c src/backend/cpu/kern_avxvnni.c src/backend/cpu/kern_avx512.c src/backend/cpu/kern_vnni.c src/backend/cpu/kern_amx.c)
  list(APPEND BACKEND_SOURCES src/backend/cpu/kern_avx2_nested.c src/backend/cpu/kern_vnni_nested.c src/backend/cpu/kern_amx_nested.c)
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_amx_nested.c=-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mamx-tile -mamx-int8 -mfma -mf16c -mbmi2")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_avx2_nested.c=-O3 -mavx2 -mfma -mf16c -mbmi2")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_vnni_nested.c=-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c -mbmi2")
  list(APPEND BACKEND_SOURCES src/backend/cpu/kern_avx2_plain.c src/backend/cpu/kern_avx512_plain.c src/backend/cpu/kern_amx_plain.c)
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_avx2_plain.c=-O3 -mavx2 -mfma -mf16c")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_avx512_plain.c=-O3 -mavx512f -mfma")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_amx_plain.c=-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mamx-tile -mamx-bf16 -mfma")
  list(APPEND BACKEND_SOURCES src/backend/cpu/kern_kv_avx2.c src/backend/cpu/kern_kv_vnni.c src/backend/cpu/row_avx2.c)
  list(APPEND KERNEL_FLAGS "src/backend/cpu/row_avx2.c=-O3 -mavx2 -mfma")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_kv_avx2.c=-O3 -mavx2 -mbmi2")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_kv_vnni.c=-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mbmi2 -mprefer-vector-width=512")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_avx2.c=-O3 -mavx2 -mfma -mf16c -mbmi2")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_avxvnni.c=-O3 -mavx2 -mavxvnni -mfma -mf16c -mbmi2")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_avx512.c=-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mbmi2")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_vnni.c=-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c -mbmi2")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_amx.c=-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mamx-tile -mamx-int8 -mfma -mf16c -mbmi2")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND BACKEND_SOURCES src/backend/cpu/kern_neon.c src/backend/cpu/kern_neon_plain.c src/backend/cpu/kern_dotprod.c
    src/backend/cpu/kern_dotprod_nested.c src/backend/cpu/kern_half.c src/backend/cpu/kern_i8mm.c)
  list(APPEND BACKEND_SOURCES src/backend/cpu/kern_kv_dotprod.c src/backend/cpu/row_neon.c)
  list(APPEND KERNEL_FLAGS "src/backend/cpu/row_neon.c=-O3")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_kv_dotprod.c=-O3 -march=armv8.2-a+dotprod")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_neon.c=-O3")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_neon_plain.c=-O3")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_dotprod.c=-O3 -march=armv8.2-a+dotprod")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_half.c=-O3 -march=armv8.2-a+fp16")
  list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_i8mm.c=-O3 -march=armv8.2-a+dotprod+i8mm")
  list(APPEND BACKEND_SOURCES src/backend/cpu/kern_bfmmla.c)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU") # its first pass of scheduling spills; Clang has no such flag
    list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_bfmmla.c=-O3 -fno-schedule-insns -march=armv8.2-a+bf16")
    list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_dotprod_nested.c=-O3 -fno-schedule-insns -march=armv8.2-a+dotprod")
  else()
    list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_bfmmla.c=-O3 -march=armv8.2-a+bf16")
    list(APPEND KERNEL_FLAGS "src/backend/cpu/kern_dotprod_nested.c=-O3 -march=armv8.2-a+dotprod")
  endif()
endif()
