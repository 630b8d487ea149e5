module @mlxcel {
func.func public @main(%1: tensor<1229xi32>,
    %2: tensor<576x32xf32> {tf.aliasing_output = 0 : i32},
    %3: tensor<576x32xf32> {tf.aliasing_output = 1 : i32},
    %4: tensor<3x192xf32> {tf.aliasing_output = 2 : i32},
    %5: tensor<3x256xf32> {tf.aliasing_output = 3 : i32},
    %11: tensor<96x32xui8>,
    %12: tensor<96x2xbf16>,
    %13: tensor<96x2xbf16>,
    %45: tensor<64xf32>,
    %51: tensor<128x64xf32>,
    %168: tensor<256x32xui8>,
    %169: tensor<256x2xbf16>,
    %170: tensor<256x2xbf16>,
    %199: tensor<64x128xf32>)
    -> (tensor<576x32xf32>, tensor<576x32xf32>, tensor<3x192xf32>, tensor<3x256xf32>, tensor<1x64xf32>) {
  %6 = stablehlo.slice %1 [0:64] : (tensor<1229xi32>) -> tensor<64xi32>
  %7 = stablehlo.constant dense<96> : tensor<64xi32>
  %8 = stablehlo.compare GE, %6, %7, SIGNED : (tensor<64xi32>, tensor<64xi32>) -> tensor<64xi1>
  %9 = stablehlo.constant dense<0> : tensor<64xi32>
  %10 = stablehlo.select %8, %9, %6 : tensor<64xi1>, tensor<64xi32>
  %14 = "stablehlo.gather"(%11, %10) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 32>}> : (tensor<96x32xui8>, tensor<64xi32>) -> tensor<64x32xui8>
  %15 = "stablehlo.gather"(%12, %10) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 2>}> : (tensor<96x2xbf16>, tensor<64xi32>) -> tensor<64x2xbf16>
  %16 = "stablehlo.gather"(%13, %10) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 2>}> : (tensor<96x2xbf16>, tensor<64xi32>) -> tensor<64x2xbf16>
  %17 = stablehlo.broadcast_in_dim %14, dims = [0, 1] : (tensor<64x32xui8>) -> tensor<64x32x2xui8>
  %18 = stablehlo.iota dim = 2 : tensor<64x32x2xui8>
  %19 = stablehlo.constant dense<4> : tensor<64x32x2xui8>
  %20 = stablehlo.multiply %18, %19 : tensor<64x32x2xui8>
  %21 = stablehlo.shift_right_logical %17, %20 : tensor<64x32x2xui8>
  %22 = stablehlo.constant dense<15> : tensor<64x32x2xui8>
  %23 = stablehlo.and %21, %22 : tensor<64x32x2xui8>
  %24 = stablehlo.reshape %23 : (tensor<64x32x2xui8>) -> tensor<64x64xui8>
  %25 = stablehlo.convert %24 : (tensor<64x64xui8>) -> tensor<64x64xf32>
  %26 = stablehlo.reshape %25 : (tensor<64x64xf32>) -> tensor<64x2x32xf32>
  %27 = stablehlo.convert %15 : (tensor<64x2xbf16>) -> tensor<64x2xf32>
  %28 = stablehlo.broadcast_in_dim %27, dims = [0, 1] : (tensor<64x2xf32>) -> tensor<64x2x32xf32>
  %29 = stablehlo.multiply %26, %28 : tensor<64x2x32xf32>
  %30 = stablehlo.convert %16 : (tensor<64x2xbf16>) -> tensor<64x2xf32>
  %31 = stablehlo.broadcast_in_dim %30, dims = [0, 1] : (tensor<64x2xf32>) -> tensor<64x2x32xf32>
  %32 = stablehlo.add %29, %31 : tensor<64x2x32xf32>
  %33 = stablehlo.reshape %32 : (tensor<64x2x32xf32>) -> tensor<64x64xf32>
  %34 = stablehlo.reshape %33 : (tensor<64x64xf32>) -> tensor<64x1x64xf32>
  %35 = stablehlo.multiply %34, %34 : tensor<64x1x64xf32>
  %36 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %37 = stablehlo.reduce(%35 init: %36) applies stablehlo.add across dimensions = [2] : (tensor<64x1x64xf32>, tensor<f32>) -> tensor<64x1xf32>
  %38 = stablehlo.constant dense<6.400000000e+01> : tensor<64x1xf32>
  %39 = stablehlo.divide %37, %38 : tensor<64x1xf32>
  %40 = stablehlo.broadcast_in_dim %39, dims = [0, 1] : (tensor<64x1xf32>) -> tensor<64x1x64xf32>
  %41 = stablehlo.constant dense<9.999999747e-06> : tensor<64x1x64xf32>
  %42 = stablehlo.add %40, %41 : tensor<64x1x64xf32>
  %43 = stablehlo.sqrt %42 : tensor<64x1x64xf32>
  %44 = stablehlo.divide %34, %43 : tensor<64x1x64xf32>
  %46 = stablehlo.broadcast_in_dim %45, dims = [2] : (tensor<64xf32>) -> tensor<64x1x64xf32>
  %47 = stablehlo.multiply %44, %46 : tensor<64x1x64xf32>
  %48 = stablehlo.reshape %47 : (tensor<64x1x64xf32>) -> tensor<64x64xf32>
  %49 = stablehlo.reshape %48 : (tensor<64x64xf32>) -> tensor<64x1x64xf32>
  %50 = stablehlo.reshape %49 : (tensor<64x1x64xf32>) -> tensor<64x64xf32>
  %52 = stablehlo.dot_general %50, %51, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<64x64xf32>, tensor<128x64xf32>) -> tensor<64x128xf32>
  %53 = stablehlo.slice %52 [0:64, 0:64] : (tensor<64x128xf32>) -> tensor<64x64xf32>
  %54 = stablehlo.reshape %53 : (tensor<64x64xf32>) -> tensor<64x4x16xf32>
  %55 = stablehlo.slice %1 [205:1229] : (tensor<1229xi32>) -> tensor<1024xi32>
  %56 = stablehlo.bitcast_convert %55 : (tensor<1024xi32>) -> tensor<1024xf32>
  %57 = stablehlo.reshape %56 : (tensor<1024xf32>) -> tensor<64x2x8xf32>
  %58 = stablehlo.slice %57 [0:64, 0:1, 0:8] : (tensor<64x2x8xf32>) -> tensor<64x1x8xf32>
  %59 = stablehlo.reshape %58 : (tensor<64x1x8xf32>) -> tensor<64x8xf32>
  %60 = stablehlo.broadcast_in_dim %59, dims = [0, 2] : (tensor<64x8xf32>) -> tensor<64x4x8xf32>
  %61 = stablehlo.slice %57 [0:64, 1:2, 0:8] : (tensor<64x2x8xf32>) -> tensor<64x1x8xf32>
  %62 = stablehlo.reshape %61 : (tensor<64x1x8xf32>) -> tensor<64x8xf32>
  %63 = stablehlo.broadcast_in_dim %62, dims = [0, 2] : (tensor<64x8xf32>) -> tensor<64x4x8xf32>
  %64 = stablehlo.reshape %54 : (tensor<64x4x16xf32>) -> tensor<64x4x2x8xf32>
  %65 = stablehlo.slice %64 [0:64, 0:4, 0:1, 0:8] : (tensor<64x4x2x8xf32>) -> tensor<64x4x1x8xf32>
  %66 = stablehlo.reshape %65 : (tensor<64x4x1x8xf32>) -> tensor<64x4x8xf32>
  %67 = stablehlo.slice %64 [0:64, 0:4, 1:2, 0:8] : (tensor<64x4x2x8xf32>) -> tensor<64x4x1x8xf32>
  %68 = stablehlo.reshape %67 : (tensor<64x4x1x8xf32>) -> tensor<64x4x8xf32>
  %69 = stablehlo.multiply %66, %60 : tensor<64x4x8xf32>
  %70 = stablehlo.multiply %68, %60 : tensor<64x4x8xf32>
  %71 = stablehlo.multiply %68, %63 : tensor<64x4x8xf32>
  %72 = stablehlo.subtract %69, %71 : tensor<64x4x8xf32>
  %73 = stablehlo.multiply %66, %63 : tensor<64x4x8xf32>
  %74 = stablehlo.add %70, %73 : tensor<64x4x8xf32>
  %75 = stablehlo.reshape %72 : (tensor<64x4x8xf32>) -> tensor<64x4x1x8xf32>
  %76 = stablehlo.reshape %74 : (tensor<64x4x8xf32>) -> tensor<64x4x1x8xf32>
  %77 = stablehlo.concatenate %75, %76, dim = 2 : (tensor<64x4x1x8xf32>, tensor<64x4x1x8xf32>) -> tensor<64x4x2x8xf32>
  %78 = stablehlo.reshape %77 : (tensor<64x4x2x8xf32>) -> tensor<64x4x16xf32>
  %79 = stablehlo.reshape %78 : (tensor<64x4x16xf32>) -> tensor<64x64xf32>
  %80 = stablehlo.slice %52 [0:64, 64:96] : (tensor<64x128xf32>) -> tensor<64x32xf32>
  %81 = stablehlo.reshape %80 : (tensor<64x32xf32>) -> tensor<64x2x16xf32>
  %82 = stablehlo.slice %1 [205:1229] : (tensor<1229xi32>) -> tensor<1024xi32>
  %83 = stablehlo.bitcast_convert %82 : (tensor<1024xi32>) -> tensor<1024xf32>
  %84 = stablehlo.reshape %83 : (tensor<1024xf32>) -> tensor<64x2x8xf32>
  %85 = stablehlo.slice %84 [0:64, 0:1, 0:8] : (tensor<64x2x8xf32>) -> tensor<64x1x8xf32>
  %86 = stablehlo.reshape %85 : (tensor<64x1x8xf32>) -> tensor<64x8xf32>
  %87 = stablehlo.broadcast_in_dim %86, dims = [0, 2] : (tensor<64x8xf32>) -> tensor<64x2x8xf32>
  %88 = stablehlo.slice %84 [0:64, 1:2, 0:8] : (tensor<64x2x8xf32>) -> tensor<64x1x8xf32>
  %89 = stablehlo.reshape %88 : (tensor<64x1x8xf32>) -> tensor<64x8xf32>
  %90 = stablehlo.broadcast_in_dim %89, dims = [0, 2] : (tensor<64x8xf32>) -> tensor<64x2x8xf32>
  %91 = stablehlo.reshape %81 : (tensor<64x2x16xf32>) -> tensor<64x2x2x8xf32>
  %92 = stablehlo.slice %91 [0:64, 0:2, 0:1, 0:8] : (tensor<64x2x2x8xf32>) -> tensor<64x2x1x8xf32>
  %93 = stablehlo.reshape %92 : (tensor<64x2x1x8xf32>) -> tensor<64x2x8xf32>
  %94 = stablehlo.slice %91 [0:64, 0:2, 1:2, 0:8] : (tensor<64x2x2x8xf32>) -> tensor<64x2x1x8xf32>
  %95 = stablehlo.reshape %94 : (tensor<64x2x1x8xf32>) -> tensor<64x2x8xf32>
  %96 = stablehlo.multiply %93, %87 : tensor<64x2x8xf32>
  %97 = stablehlo.multiply %95, %87 : tensor<64x2x8xf32>
  %98 = stablehlo.multiply %95, %90 : tensor<64x2x8xf32>
  %99 = stablehlo.subtract %96, %98 : tensor<64x2x8xf32>
  %100 = stablehlo.multiply %93, %90 : tensor<64x2x8xf32>
  %101 = stablehlo.add %97, %100 : tensor<64x2x8xf32>
  %102 = stablehlo.reshape %99 : (tensor<64x2x8xf32>) -> tensor<64x2x1x8xf32>
  %103 = stablehlo.reshape %101 : (tensor<64x2x8xf32>) -> tensor<64x2x1x8xf32>
  %104 = stablehlo.concatenate %102, %103, dim = 2 : (tensor<64x2x1x8xf32>, tensor<64x2x1x8xf32>) -> tensor<64x2x2x8xf32>
  %105 = stablehlo.reshape %104 : (tensor<64x2x2x8xf32>) -> tensor<64x2x16xf32>
  %106 = stablehlo.reshape %105 : (tensor<64x2x16xf32>) -> tensor<64x32xf32>
  %107 = stablehlo.slice %1 [141:205] : (tensor<1229xi32>) -> tensor<64xi32>
  %108 = stablehlo.reshape %106 : (tensor<64x32xf32>) -> tensor<64x2x16xf32>
  %109 = stablehlo.reshape %108 : (tensor<64x2x16xf32>) -> tensor<64x32xf32>
  %110 = "stablehlo.scatter"(%2, %107, %109) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
  ^bb0(%111: tensor<f32>, %112: tensor<f32>):
    stablehlo.return %112 : tensor<f32>
  }) : (tensor<576x32xf32>, tensor<64xi32>, tensor<64x32xf32>) -> tensor<576x32xf32>
  %113 = stablehlo.slice %52 [0:64, 96:128] : (tensor<64x128xf32>) -> tensor<64x32xf32>
  %114 = stablehlo.reshape %113 : (tensor<64x32xf32>) -> tensor<64x2x16xf32>
  %115 = stablehlo.reshape %114 : (tensor<64x2x16xf32>) -> tensor<64x32xf32>
  %116 = "stablehlo.scatter"(%3, %107, %115) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
  ^bb0(%117: tensor<f32>, %118: tensor<f32>):
    stablehlo.return %118 : tensor<f32>
  }) : (tensor<576x32xf32>, tensor<64xi32>, tensor<64x32xf32>) -> tensor<576x32xf32>
  %119 = stablehlo.slice %1 [64:128] : (tensor<1229xi32>) -> tensor<64xi32>
  %120 = stablehlo.reshape %119 : (tensor<64xi32>) -> tensor<1x64xi32>
  %121 = stablehlo.slice %1 [133:141] : (tensor<1229xi32>) -> tensor<8xi32>
  %122 = stablehlo.reshape %110 : (tensor<576x32xf32>) -> tensor<9x2048xf32>
  %123 = "stablehlo.gather"(%122, %121) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 2048>}> : (tensor<9x2048xf32>, tensor<8xi32>) -> tensor<8x2048xf32>
  %124 = stablehlo.reshape %123 : (tensor<8x2048xf32>) -> tensor<1x512x2x16xf32>
  %125 = stablehlo.reshape %79 : (tensor<64x64xf32>) -> tensor<64x4x16xf32>
  %126 = stablehlo.reshape %125 : (tensor<64x4x16xf32>) -> tensor<1x64x2x2x16xf32>
  %127 = stablehlo.dot_general %126, %124, batching_dims = [0, 2] x [0, 2], contracting_dims = [4] x [3], precision = [HIGHEST, HIGHEST] : (tensor<1x64x2x2x16xf32>, tensor<1x512x2x16xf32>) -> tensor<1x2x64x2x512xf32>
  %128 = stablehlo.constant dense<2.500000000e-01> : tensor<1x2x64x2x512xf32>
  %129 = stablehlo.multiply %127, %128 : tensor<1x2x64x2x512xf32>
  %130 = stablehlo.iota dim = 2 : tensor<1x64x512xi32>
  %131 = stablehlo.broadcast_in_dim %120, dims = [0, 1] : (tensor<1x64xi32>) -> tensor<1x64x512xi32>
  %132 = stablehlo.compare LE, %130, %131, SIGNED : (tensor<1x64x512xi32>, tensor<1x64x512xi32>) -> tensor<1x64x512xi1>
  %133 = stablehlo.constant dense<100> : tensor<1x64x512xi32>
  %134 = stablehlo.subtract %131, %133 : tensor<1x64x512xi32>
  %135 = stablehlo.compare GT, %130, %134, SIGNED : (tensor<1x64x512xi32>, tensor<1x64x512xi32>) -> tensor<1x64x512xi1>
  %136 = stablehlo.and %132, %135 : tensor<1x64x512xi1>
  %137 = stablehlo.broadcast_in_dim %136, dims = [0, 2, 4] : (tensor<1x64x512xi1>) -> tensor<1x2x64x2x512xi1>
  %138 = stablehlo.constant dense<0xFF800000> : tensor<1x2x64x2x512xf32>
  %139 = stablehlo.select %137, %129, %138 : tensor<1x2x64x2x512xi1>, tensor<1x2x64x2x512xf32>
  %140 = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %141 = stablehlo.reduce(%139 init: %140) applies stablehlo.maximum across dimensions = [4] : (tensor<1x2x64x2x512xf32>, tensor<f32>) -> tensor<1x2x64x2xf32>
  %142 = stablehlo.broadcast_in_dim %141, dims = [0, 1, 2, 3] : (tensor<1x2x64x2xf32>) -> tensor<1x2x64x2x512xf32>
  %143 = stablehlo.subtract %139, %142 : tensor<1x2x64x2x512xf32>
  %144 = stablehlo.exponential %143 : tensor<1x2x64x2x512xf32>
  %145 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
  %146 = stablehlo.reduce(%144 init: %145) applies stablehlo.add across dimensions = [4] : (tensor<1x2x64x2x512xf32>, tensor<f32>) -> tensor<1x2x64x2xf32>
  %147 = stablehlo.slice %1 [133:141] : (tensor<1229xi32>) -> tensor<8xi32>
  %148 = stablehlo.reshape %116 : (tensor<576x32xf32>) -> tensor<9x2048xf32>
  %149 = "stablehlo.gather"(%148, %147) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 2048>}> : (tensor<9x2048xf32>, tensor<8xi32>) -> tensor<8x2048xf32>
  %150 = stablehlo.reshape %149 : (tensor<8x2048xf32>) -> tensor<1x512x2x16xf32>
  %151 = stablehlo.slice %1 [130:131] : (tensor<1229xi32>) -> tensor<1xi32>
  %152 = stablehlo.iota dim = 1 : tensor<1x512x2x16xi32>
  %153 = stablehlo.broadcast_in_dim %151, dims = [0] : (tensor<1xi32>) -> tensor<1x512x2x16xi32>
  %154 = stablehlo.compare LT, %152, %153, SIGNED : (tensor<1x512x2x16xi32>, tensor<1x512x2x16xi32>) -> tensor<1x512x2x16xi1>
  %155 = stablehlo.constant dense<0.000000000e+00> : tensor<1x512x2x16xf32>
  %156 = stablehlo.select %154, %150, %155 : tensor<1x512x2x16xi1>, tensor<1x512x2x16xf32>
  %157 = stablehlo.dot_general %144, %156, batching_dims = [0, 1] x [0, 2], contracting_dims = [4] x [1], precision = [HIGHEST, HIGHEST] : (tensor<1x2x64x2x512xf32>, tensor<1x512x2x16xf32>) -> tensor<1x2x64x2x16xf32>
  %158 = stablehlo.broadcast_in_dim %146, dims = [0, 1, 2, 3] : (tensor<1x2x64x2xf32>) -> tensor<1x2x64x2x16xf32>
  %159 = stablehlo.divide %157, %158 : tensor<1x2x64x2x16xf32>
  %160 = stablehlo.transpose %159, dims = [0, 2, 1, 3, 4] : (tensor<1x2x64x2x16xf32>) -> tensor<1x64x2x2x16xf32>
  %161 = stablehlo.reshape %160 : (tensor<1x64x2x2x16xf32>) -> tensor<64x64xf32>
  %162 = stablehlo.reshape %33 : (tensor<64x64xf32>) -> tensor<64x1x64xf32>
  %163 = stablehlo.reshape %161 : (tensor<64x64xf32>) -> tensor<64x1x64xf32>
  %164 = stablehlo.add %162, %163 : tensor<64x1x64xf32>
  %165 = stablehlo.reshape %164 : (tensor<64x1x64xf32>) -> tensor<64x64xf32>
  %166 = stablehlo.reshape %165 : (tensor<64x64xf32>) -> tensor<64x1x64xf32>
  %167 = stablehlo.reshape %166 : (tensor<64x1x64xf32>) -> tensor<64x64xf32>
  %171 = stablehlo.broadcast_in_dim %168, dims = [0, 1] : (tensor<256x32xui8>) -> tensor<256x32x2xui8>
  %172 = stablehlo.iota dim = 2 : tensor<256x32x2xui8>
  %173 = stablehlo.constant dense<4> : tensor<256x32x2xui8>
  %174 = stablehlo.multiply %172, %173 : tensor<256x32x2xui8>
  %175 = stablehlo.shift_right_logical %171, %174 : tensor<256x32x2xui8>
  %176 = stablehlo.constant dense<15> : tensor<256x32x2xui8>
  %177 = stablehlo.and %175, %176 : tensor<256x32x2xui8>
  %178 = stablehlo.reshape %177 : (tensor<256x32x2xui8>) -> tensor<256x64xui8>
  %179 = stablehlo.convert %178 : (tensor<256x64xui8>) -> tensor<256x64xf32>
  %180 = stablehlo.reshape %179 : (tensor<256x64xf32>) -> tensor<256x2x32xf32>
  %181 = stablehlo.convert %169 : (tensor<256x2xbf16>) -> tensor<256x2xf32>
  %182 = stablehlo.broadcast_in_dim %181, dims = [0, 1] : (tensor<256x2xf32>) -> tensor<256x2x32xf32>
  %183 = stablehlo.multiply %180, %182 : tensor<256x2x32xf32>
  %184 = stablehlo.convert %170 : (tensor<256x2xbf16>) -> tensor<256x2xf32>
  %185 = stablehlo.broadcast_in_dim %184, dims = [0, 1] : (tensor<256x2xf32>) -> tensor<256x2x32xf32>
  %186 = stablehlo.add %183, %185 : tensor<256x2x32xf32>
  %187 = stablehlo.reshape %186 : (tensor<256x2x32xf32>) -> tensor<256x64xf32>
  %188 = stablehlo.dot_general %167, %187, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<64x64xf32>, tensor<256x64xf32>) -> tensor<64x256xf32>
  %189 = stablehlo.slice %188 [0:64, 0:128] : (tensor<64x256xf32>) -> tensor<64x128xf32>
  %190 = stablehlo.reshape %189 : (tensor<64x128xf32>) -> tensor<64x1x128xf32>
  %191 = stablehlo.slice %188 [0:64, 128:256] : (tensor<64x256xf32>) -> tensor<64x128xf32>
  %192 = stablehlo.reshape %191 : (tensor<64x128xf32>) -> tensor<64x1x128xf32>
  %193 = stablehlo.logistic %190 : tensor<64x1x128xf32>
  %194 = stablehlo.multiply %190, %193 : tensor<64x1x128xf32>
  %195 = stablehlo.multiply %194, %192 : tensor<64x1x128xf32>
  %196 = stablehlo.reshape %195 : (tensor<64x1x128xf32>) -> tensor<64x128xf32>
  %197 = stablehlo.reshape %196 : (tensor<64x128xf32>) -> tensor<64x1x128xf32>
  %198 = stablehlo.reshape %197 : (tensor<64x1x128xf32>) -> tensor<64x128xf32>
  %200 = stablehlo.dot_general %198, %199, contracting_dims = [1] x [1], precision = [HIGHEST, HIGHEST] : (tensor<64x128xf32>, tensor<64x128xf32>) -> tensor<64x64xf32>
  %201 = stablehlo.reshape %200 : (tensor<64x64xf32>) -> tensor<64x1x64xf32>
  %202 = stablehlo.reshape %201 : (tensor<64x1x64xf32>) -> tensor<64x64xf32>
  %203 = stablehlo.slice %1 [131:132] : (tensor<1229xi32>) -> tensor<1xi32>
  %204 = "stablehlo.gather"(%202, %203) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 64>}> : (tensor<64x64xf32>, tensor<1xi32>) -> tensor<1x64xf32>
  return %110, %116, %4, %5, %204 : tensor<576x32xf32>, tensor<576x32xf32>, tensor<3x192xf32>, tensor<3x256xf32>, tensor<1x64xf32>
}
}
